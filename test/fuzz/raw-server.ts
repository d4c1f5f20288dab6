import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import * as fc from 'fast-check'
import type { Protocol } from './protocols.ts'

/** What becomes of an answer on its way. */
type Change =
  | { readonly kind: 'none' | 'twice' | 'end' | 'reset' | 'in two' }
  | { readonly kind: 'cut' | 'from'; readonly at: number }
  | { readonly kind: 'byte'; readonly at: number; readonly value: number }
  | { readonly kind: 'length'; readonly at: number; readonly value: number }
  | { readonly kind: 'more'; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: 'instead'; readonly bytes: Uint8Array }

/** One of the things that it says to a request. */
export interface Piece {
  /** Which of the answers of the protocol. */
  readonly answer: number
  readonly change: Change
}

/** What a server says, whatever it is asked. */
export interface Script {
  /** It opens connections as a real one does. Otherwise everything comes from `answers`. */
  readonly opens: boolean
  /** To each request in turn, from the beginning again when they are used up. */
  readonly answers: readonly (readonly Piece[])[]
}

const at = fc.oneof(fc.nat(12), fc.nat(200))
const some = fc.uint8Array({ minLength: 1, maxLength: 40 })
const change: fc.Arbitrary<Change> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant<'none'>('none') }) },
  fc.record({ kind: fc.constantFrom<'twice' | 'end' | 'reset' | 'in two'>('twice', 'in two', 'end', 'reset') }),
  fc.record({ kind: fc.constantFrom<'cut' | 'from'>('cut', 'from'), at }),
  { weight: 3, arbitrary: fc.record({ kind: fc.constant<'byte'>('byte'), at, value: fc.nat(255) }) },
  fc.record({
    kind: fc.constant<'length'>('length'),
    at,
    value: fc.constantFrom(0, 1, -1, -5, 2 ** 31 - 1, -(2 ** 31), 65_535, 16_777_216),
  }),
  fc.record({ kind: fc.constant<'more'>('more'), at, bytes: some }),
  fc.record({ kind: fc.constant<'instead'>('instead'), bytes: fc.uint8Array({ maxLength: 300 }) }),
)
const piece = fc.record<Piece>({ answer: fc.oneof(fc.nat(3), fc.nat(40)), change })

export const scripts: fc.Arbitrary<Script> = fc.record({
  opens: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  answers: fc.array(fc.array(piece, { maxLength: 3 }), { minLength: 1, maxLength: 5 }),
})

/** Whether it sends bytes that are no whole answers of the protocol. */
export function isBroken({ answers }: Script): boolean {
  return answers.flat().some(({ change: { kind } }) => !['none', 'twice', 'in two'].includes(kind))
}

function changed(answer: Buffer, how: Change): readonly Buffer[] {
  const place = 'at' in how ? Math.min(how.at, Math.max(answer.length - 1, 0)) : 0
  switch (how.kind) {
    case 'none':
    case 'end':
    case 'reset':
      return [answer]
    case 'twice':
      return [answer, answer]
    case 'in two':
      return [answer.subarray(0, answer.length >> 1), answer.subarray(answer.length >> 1)]
    case 'cut':
      return [answer.subarray(0, place)]
    case 'from':
      return [answer.subarray(place)]
    case 'byte':
      return [Buffer.concat([answer.subarray(0, place), Buffer.from([how.value]), answer.subarray(place + 1)])]
    case 'length': {
      const copy = Buffer.concat([answer, Buffer.alloc(4)])
      // Half of the protocols count from the other end.
      if (how.at % 2 === 0) copy.writeInt32BE(how.value, place)
      else copy.writeInt32LE(how.value, place)
      return [copy.subarray(0, answer.length)]
    }
    case 'more':
      return [Buffer.concat([answer.subarray(0, place), how.bytes, answer.subarray(place)])]
    case 'instead':
      return [Buffer.from(how.bytes)]
  }
}

export interface RawServer {
  readonly port: number
  /** All that it has said. */
  readonly said: () => Buffer
  /** Ends all connections. */
  readonly stop: () => Promise<void>
}

/** Listens on loopback and says what the script has, in the order in which it is asked. */
export async function startRawServer(protocol: Protocol, script: Script): Promise<RawServer> {
  const sockets = new Set<Socket>()
  const said: Buffer[] = []
  let asked = 0
  const send = (socket: Socket, bytes: Buffer): void => {
    if (socket.destroyed || !socket.writable || bytes.length === 0) return
    said.push(bytes)
    socket.write(bytes)
  }
  const answer = (socket: Socket, request: Buffer): void => {
    for (const { answer, change: how } of script.answers[asked++ % script.answers.length]!) {
      const all = protocol.answers(request)
      const pieces = changed(all[answer % all.length]!, how)
      for (const bytes of pieces) send(socket, bytes)
      if (how.kind === 'end') socket.end()
      if (how.kind === 'reset') socket.resetAndDestroy()
    }
  }
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.setNoDelay()
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket))
    let nth = 0
    if (protocol.greeting !== undefined) {
      if (script.opens) send(socket, protocol.greeting)
      else answer(socket, Buffer.alloc(0))
    }
    socket.on('data', (request: Buffer) => {
      const opening = script.opens ? protocol.opening(request, nth++) : undefined
      if (opening === undefined) answer(socket, request)
      else send(socket, opening)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    said: () => Buffer.concat(said),
    async stop() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}
