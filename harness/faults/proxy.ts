import { connect, createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { onFreePorts } from '../ports.ts'

type Direction = 'requests' | 'replies'

export interface Proxy extends AsyncDisposable {
  readonly host: string
  readonly port: number
  /** `redis://` address of the proxy. */
  readonly url: string
  /** Connections that are open now. */
  readonly connections: number
  /** Replies that `cutOnNextReply` has swallowed so far. */
  readonly lostReplies: number
  /** Pieces of requests and replies that `dropRequests` and `dropReplies` have swallowed so far. */
  readonly dropped: number
  /** How often a client has begun to send after the server's last word: the round trips of requests that go one at a time. */
  readonly roundTrips: number
  /** Holds everything of one direction (or of both) back. 0 ends it. */
  delay: (ms: number, which?: Direction | 'both') => void
  /** The server gets the requests and its answers vanish; the connection stays open. */
  dropReplies: (on: boolean) => void
  /** The requests vanish, or those that contain this text; the connection stays open. */
  dropRequests: (which: boolean | string) => void
  /**
   * The reply is lost: requests go through, the next answer is swallowed and its connection reset, once. With a text,
   * only the answer to a request that contains it (a connection's own greetings and pings then pass).
   */
  cutOnNextReply: (requestContains?: string) => void
  /**
   * Connections among whose first requests is this text (in any case) are forgotten, as a firewall does it: nothing passes
   * in either direction any more, and nobody is told. Those that are opened later are not affected.
   */
  forget: (requestContains: string) => void
  /** New connections are refused; those that exist stay. */
  refuse: (on: boolean) => Promise<void>
  /** Resets every connection that exists. */
  reset: () => void
  /** Connections that are opened from now on lead to another server on this machine. */
  aim: (port: number) => void
  close: () => Promise<void>
}

/** What the test has asked for. */
interface Faults {
  delayMs: Record<Direction, number>
  drop: { requests: boolean | string; replies: boolean }
  cut: { requestContains: string | undefined } | undefined
  lostReplies: number
  dropped: number
  roundTrips: number
}

/** A TCP proxy in front of a server on this machine, with faults that a test switches on and off. */
export async function startProxy(targetPort: number): Promise<Proxy> {
  const faults: Faults = {
    delayMs: { requests: 0, replies: 0 },
    drop: { requests: false, replies: false },
    cut: undefined,
    lostReplies: 0,
    dropped: 0,
    roundTrips: 0,
  }
  const links = new Set<Link>()
  let aimedAt = targetPort
  const server = createServer((client) => {
    const link = new Link(client, connect(aimedAt, '127.0.0.1'), faults, () => links.delete(link))
    links.add(link)
  })
  const listen = (port: number): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, '127.0.0.1', () => {
        server.off('error', reject)
        resolve()
      })
    })
  const port = await onFreePorts(1, async ([free = 0]) => {
    await listen(free)
    return free
  })
  const reset = (): void => {
    for (const link of links) link.reset()
  }
  // Closing stops the listening at once, so its callback (all connections gone) is not waited for.
  const deafen = (): void => void (server.listening && server.close())
  const close = async (): Promise<void> => {
    deafen()
    reset()
  }
  return {
    host: '127.0.0.1',
    port,
    url: `redis://127.0.0.1:${port}`,
    get connections() {
      return links.size
    },
    get lostReplies() {
      return faults.lostReplies
    },
    get dropped() {
      return faults.dropped
    },
    get roundTrips() {
      return faults.roundTrips
    },
    delay: (ms, which = 'both') => {
      if (which !== 'replies') faults.delayMs.requests = ms
      if (which !== 'requests') faults.delayMs.replies = ms
    },
    dropReplies: (on) => void (faults.drop.replies = on),
    dropRequests: (which) => void (faults.drop.requests = which),
    cutOnNextReply: (requestContains) => void (faults.cut = { requestContains }),
    forget: (requestContains) => {
      for (const link of links) link.forget(requestContains)
    },
    refuse: async (on) => {
      if (on) deafen()
      else if (!server.listening) await listen(port)
    },
    reset,
    aim: (port) => void (aimedAt = port),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** How much of what a connection was used for is remembered. */
const FIRST_REQUESTS = 10_000

/** One client's connection and its continuation to the server. */
class Link {
  readonly #client: Socket
  readonly #server: Socket
  readonly #faults: Faults
  readonly #closed: () => void
  /** The cut whose request has passed here, so that the next reply is its reply. */
  #askedForCut: Faults['cut']
  #firstRequests = ''
  #isForgotten = false
  #lastToSend: Direction = 'replies'

  constructor(client: Socket, server: Socket, faults: Faults, closed: () => void) {
    this.#client = client
    this.#server = server
    this.#faults = faults
    this.#closed = closed
    client.setNoDelay()
    server.setNoDelay()
    this.#pump(client, server, 'requests')
    this.#pump(server, client, 'replies')
  }

  forget(requestContains: string): void {
    this.#isForgotten ||= this.#firstRequests.toLowerCase().includes(requestContains.toLowerCase())
  }

  reset(): void {
    this.#closed()
    // The client must see a failure, not an orderly end. The server gets an orderly end after all that was sent.
    this.#client.resetAndDestroy()
    this.#server.end()
    this.#server.resume()
  }

  #pump(from: Socket, to: Socket, direction: Direction): void {
    const queue = new DelayQueue()
    const later = (action: () => void): void => queue.add(this.#faults.delayMs[direction], action)
    from.on('data', (piece) => {
      if (direction === 'requests' && this.#lastToSend === 'replies') this.#faults.roundTrips += 1
      this.#lastToSend = direction
      if (!this.#swallows(direction, piece)) later(() => to.writable && to.write(piece))
    })
    from.on('end', () => later(() => !this.#isForgotten && to.end()))
    from.on('error', () => this.reset())
    from.on('close', () => this.#closed())
  }

  #swallows(direction: Direction, piece: Buffer): boolean {
    const { cut, drop } = this.#faults
    const { requestContains } = cut ?? {}
    if (this.#isForgotten) return true
    if (direction === 'requests') {
      if (this.#firstRequests.length < FIRST_REQUESTS) this.#firstRequests += piece.toString('latin1')
      if (requestContains !== undefined && piece.includes(requestContains)) this.#askedForCut = cut
    } else if (cut !== undefined && (requestContains === undefined || this.#askedForCut === cut)) {
      this.#faults.cut = undefined
      this.#faults.lostReplies += 1
      this.reset()
      return true
    }
    const which = drop[direction]
    const isDropped = typeof which === 'string' ? piece.includes(which) : which
    if (isDropped) this.#faults.dropped += 1
    return isDropped
  }
}

/** Keeps the order of what passes, also when the delay becomes shorter between two pieces. */
class DelayQueue {
  #last = Promise.resolve()
  #waiting = 0

  add(delayMs: number, action: () => void): void {
    if (delayMs === 0 && this.#waiting === 0) action()
    else this.#last = this.#after(this.#last, performance.now() + delayMs, action)
  }

  async #after(previous: Promise<void>, dueMs: number, action: () => void): Promise<void> {
    this.#waiting += 1
    await previous
    await pause(Math.max(0, dueMs - performance.now()))
    this.#waiting -= 1
    action()
  }
}
