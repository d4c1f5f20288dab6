import type { Clock } from '../../clock.ts'
import { Refused } from './problem.ts'

/** A resource's name has at most 1 kB, each byte of which JSON may write as six. */
const MOST_BYTES = 16 * 1024
const PATIENCE_MS = 10_000

/** The body as text, if it is small and comes soon. */
export async function readBody(request: Request, clock: Clock): Promise<string> {
  const announced = request.headers.get('content-length')
  if (announced !== null && Number(announced) > MOST_BYTES) throw tooLarge()
  if (request.body === null) return ''
  if (request.bodyUsed || request.body.locked) throw new Refused(400, 'the body was read already, by someone else')
  const reader = request.body.getReader()
  let isLate = false
  const timer = clock.timer(
    () => {
      isLate = true
      reader.cancel().catch(() => undefined)
    },
    PATIENCE_MS,
    true,
  )
  const pieces: Uint8Array[] = []
  let bytes = 0
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      bytes += piece.value.byteLength
      if (bytes > MOST_BYTES) throw tooLarge()
      pieces.push(piece.value)
    }
  } catch (error) {
    // The rest of it is not needed. If it cannot be cancelled, that changes nothing.
    reader.cancel().catch(() => undefined)
    throw error instanceof Refused ? error : new Refused(400, 'the body broke off')
  } finally {
    timer.cancel()
  }
  if (isLate) throw new Refused(408, `the body was not complete within ${PATIENCE_MS} ms`)
  return Buffer.concat(pieces).toString()
}

function tooLarge(): Refused {
  return new Refused(413, `expected a body of at most ${MOST_BYTES} bytes`, { connection: 'close' })
}
