import type { Clock } from '../../clock.ts'
import type { Engine, Finding } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'

/** Enough to see a hiccup, few enough to be waited for. */
const TRIPS = 7

/** Short against the ttl? A renewal takes two round trips, one of them with the agreement of a majority. */
export async function checkRoundTrip(
  id: string,
  trip: () => Promise<unknown>,
  { clock, ttlMs, timeoutMs }: { clock: Clock; ttlMs: number; timeoutMs: number },
): Promise<Finding> {
  const tripsMs: number[] = []
  for (let i = 0; i < TRIPS; i++) {
    const sentMs = clock.monotonicMs()
    await trip()
    tripsMs.push(clock.monotonicMs() - sentMs)
  }
  tripsMs.sort((a, b) => a - b)
  const median = tripsMs[TRIPS >> 1]!
  const longest = tripsMs.at(-1)!
  const found = `median ${rounded(median)} ms, longest ${rounded(longest)} ms of ${TRIPS}; the ttl is ${ttlMs} ms`
  if (longest <= timeoutMs / 4) return { id, severity: 'ok', found, meaning: 'Short against the ttl.' }
  return {
    id,
    severity: median > timeoutMs / 2 ? 'critical' : 'warning',
    found,
    meaning: `A server may take ${timeoutMs} ms; a slower answer counts as none, and leases that are not renewed in time are lost.`,
    remedy: `Take a ttl of at least ${Math.ceil(24 * longest)} ms, servers nearer by, or faster disks for them.`,
  }
}

/** Takes a lease of that ttl on a name that nobody uses, and gives it back: the one way to know that it can be done. */
export async function tryLease(engine: Engine, ttlMs: number, random: Random): Promise<EngineError | undefined> {
  const id = random.id()
  const request = { resources: [`check:${id}`], owner: `${id}@check`, ttlMs, inOrder: false }
  try {
    const outcome = await engine.acquire(request)
    if (outcome.kind === 'granted') await engine.release({ ...request, token: outcome.token })
    return undefined
  } catch (error) {
    if (error instanceof EngineError) return error
    throw error
  }
}

/** How many of them may fail. */
export function checkSize(id: string, count: number, noun: string): Finding {
  const found = `${count} ${noun}${count === 1 ? '' : 's'}`
  if (count === 1) {
    const meaning = 'While it is down, no lease can be granted or renewed.'
    return { id, severity: 'warning', found, meaning, remedy: 'Run three, or five.' }
  }
  if (count % 2 === 0) {
    const meaning = `${count / 2 - 1} of them may fail, as with ${count - 1}; one more to go wrong for nothing.`
    return { id, severity: 'note', found, meaning, remedy: 'Run an odd number of them.' }
  }
  return { id, severity: 'ok', found, meaning: `${(count - 1) / 2} of them may fail at a time.` }
}

function rounded(ms: number): string {
  return ms < 10 ? ms.toFixed(1) : String(Math.round(ms))
}
