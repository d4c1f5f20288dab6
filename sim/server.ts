import type { MachineClock, Time } from './clock.ts'
import type { Connection, Request } from './network.ts'
import type { Seeded } from './random.ts'
import { Redis, ServerError, type Entry, type Reply } from './redis.ts'

/** What a node remembers after it crashed: all, all but the last second (AOF everysec), or nothing. */
export type Memory = 'kept' | 'second' | 'none'

/** How a node comes back: `copyMs` with the data it had this long ago, `upMs` on a server that has been running for this long. */
export interface Return {
  readonly copyMs?: number
  readonly upMs?: number
}

interface Logged {
  readonly atMs: number
  /** When the replica has it; Infinity while it is cut off. */
  readonly replicatedMs: number
  readonly key: string
  readonly entry: Entry | undefined
}

/** How long a healthy server needs for a request. */
const SERVICE_MS = 0.02
/** What appendfsync everysec may lose. */
const SYNC_EVERY_MS = 1000

/** One server of the simulation: a Redis, its machine, its disk, and maybe a replica. */
export class Server {
  readonly name: string
  readonly clock: MachineClock
  redis!: Redis
  isUp = true
  isFrozen = false
  /** What a request takes on top. */
  slowMs = 0
  readonly replica: { lagMs: number; isCut: boolean } | undefined
  readonly #time: Time
  readonly #random: Seeded
  readonly #persistence: Redis['settings']['persistence']
  #log: Logged[] = []
  #waiting: { connection: Connection; request: Request }[] = []
  #isWorking = false
  readonly #connections = new Set<Connection>()
  executing: (request: Request) => void = () => undefined
  executed: (connection: Connection, request: Request, reply: readonly Reply[]) => void = () => undefined

  constructor(
    name: string,
    time: Time,
    clock: MachineClock,
    random: Seeded,
    options: { persistence: Redis['settings']['persistence']; replicaLagMs?: number },
  ) {
    this.name = name
    this.clock = clock
    this.#time = time
    this.#random = random
    this.#persistence = options.persistence
    if (options.replicaLagMs !== undefined) this.replica = { lagMs: options.replicaLagMs, isCut: false }
    this.#start([])
  }

  opened(connection: Connection): void {
    this.#connections.add(connection)
  }

  closed(connection: Connection): void {
    this.#connections.delete(connection)
  }

  receive(connection: Connection, request: Request): void {
    if (!this.isUp) return
    this.#waiting.push({ connection, request })
    this.#work()
  }

  thaw(): void {
    this.isFrozen = false
    this.#work()
  }

  /** One request after the other, each at the speed that the server has when its turn comes. */
  #work(): void {
    if (this.#isWorking || this.isFrozen || this.#waiting.length === 0) return
    this.#isWorking = true
    const { redis } = this
    this.#time.after(SERVICE_MS + this.slowMs, () => {
      // It crashed meanwhile, and what waited is gone.
      if (redis !== this.redis || !this.isUp) return
      this.#isWorking = false
      // Frozen meanwhile: the request waits on.
      if (this.isFrozen) return
      const { connection, request } = this.#waiting.shift()!
      this.#execute(connection, request)
      this.#work()
    })
  }

  crash(): void {
    this.isUp = false
    this.#forgetWaiting()
    for (const connection of this.#connections) connection.reset(0)
  }

  restart(memory: Memory, { copyMs, upMs = 0 }: Return = {}): void {
    const nowMs = this.#time.nowMs
    const sinceMs =
      copyMs !== undefined ? nowMs - copyMs : { kept: Infinity, none: -Infinity, second: nowMs - SYNC_EVERY_MS }[memory]
    this.#start(
      this.#log.filter(({ atMs }) => atMs <= sinceMs),
      upMs,
    )
    this.isUp = true
  }

  /** The replica takes over with what it has; what the primary had beyond that is gone. */
  failOver(): void {
    this.#forgetWaiting()
    for (const connection of this.#connections) connection.reset(0)
    const nowMs = this.#time.nowMs
    this.#start(
      this.#log.filter(({ replicatedMs }) => replicatedMs <= nowMs),
      0,
      true,
    )
  }

  #forgetWaiting(): void {
    this.#waiting = []
    this.#isWorking = false
  }

  /** Keys and what is left of their time; forgets nothing. */
  *remains(): Generator<{ key: string; value: string; leftMs: number }> {
    for (const key of [...this.redis.keys.keys()].sort()) {
      const entry = this.redis.get(key)
      if (entry !== undefined && typeof entry.value === 'string') {
        yield { key, value: entry.value, leftMs: entry.expiresMs - this.clock.wallMs() }
      }
    }
  }

  #start(log: Logged[], upMs = 0, isPromoted = false): void {
    this.redis = new Redis(
      () => this.clock.wallMs(),
      {
        publish: (channel, message) => this.#publish(channel, message),
        changed: (key, entry) => {
          const { replica } = this
          const atMs = this.#time.nowMs
          const replicatedMs = replica === undefined || replica.isCut ? Infinity : atMs + replica.lagMs
          this.#log.push({ atMs, replicatedMs, key, entry })
        },
      },
      { runId: this.#random.id(), startedMs: this.clock.wallMs() - upMs, persistence: this.#persistence, isPromoted },
    )
    for (const { key, entry } of log) {
      if (entry === undefined) this.redis.keys.delete(key)
      else this.redis.keys.set(key, entry)
    }
    this.#log = this.replica === undefined ? log : log.map((logged) => ({ ...logged, replicatedMs: 0 }))
  }

  #execute(connection: Connection, request: Request): void {
    this.executing(request)
    const replies: Reply[] = []
    const before = this.#log.length
    let readyMs = this.#time.nowMs
    for (const command of request.commands) {
      const name = command[0] ?? ''
      switch (name) {
        case 'SUBSCRIBE':
          connection.channels.add(command[1]!)
          replies.push('OK')
          break
        case 'UNSUBSCRIBE':
          connection.channels.delete(command[1]!)
          replies.push('OK')
          break
        case 'WAIT': {
          const { acknowledged, atMs } = this.#wait(Number(command[1]), Number(command[2]), before)
          replies.push(acknowledged)
          readyMs = atMs
          break
        }
        default:
          replies.push(this.redis.run(command))
      }
    }
    this.executed(connection, request, replies)
    if (readyMs > this.#time.nowMs) this.#time.at(readyMs, () => connection.answer(request, replies))
    else connection.answer(request, replies)
  }

  /** How many replicas have what was written since, within this many ms. */
  #wait(count: number, withinMs: number, since: number): { acknowledged: number; atMs: number } {
    const nowMs = this.#time.nowMs
    if (this.replica === undefined) return { acknowledged: 0, atMs: count > 0 ? nowMs + withinMs : nowMs }
    const lastMs = Math.max(nowMs, ...this.#log.slice(since).map(({ replicatedMs }) => replicatedMs))
    if (lastMs <= nowMs + withinMs) return { acknowledged: 1, atMs: lastMs }
    return { acknowledged: 0, atMs: nowMs + withinMs }
  }

  #publish(channel: string, message: string): number {
    let told = 0
    for (const connection of this.#connections) {
      if (!connection.channels.has(channel)) continue
      told++
      connection.push(channel, message)
    }
    return told
  }
}

export function isServerError(reply: Reply): reply is ServerError {
  return reply instanceof ServerError
}
