import { instant, type Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { attempt } from './attempt.ts'
import { checkZookeeper } from './doctor.ts'
import { CODE, isCode, type Acl, type Client } from './driver.ts'
import { failed } from './failed.ts'
import { Holdings } from './holdings.ts'
import { inspectFolders } from './inspect.ts'
import type { Entry } from './line.ts'
import { Seat } from './seat.ts'
import { standInLine } from './waiting.ts'

export interface EngineOptions {
  readonly newClient: () => Client
  /** `host:port` of each server. */
  readonly servers: readonly string[]
  readonly chroot: string
  readonly root: string
  readonly acl: readonly Acl[]
  readonly maxTtlMs: number
  readonly requestTimeoutMs: number | undefined
  readonly clock: Clock
}

/**
 * A session lasts twice the longest ttl. When a lease is proved, the leader has heard of us within the last five
 * twelfths of a session (a sixth between two signs of life, a quarter until they surely reach it, see `Touches`), so
 * that more than half of it is left.
 */
export const SESSION_PER_TTL = 2

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the number of the transaction that made the lease's nodes (czxid)",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served by process',
}

interface Ready {
  readonly seat: Seat
  readonly holdings: Holdings
}

export class ZookeeperEngine implements Engine {
  readonly name = 'zookeeper'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #options: EngineOptions
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  #seat: Seat | undefined
  /** Of the seat: leases end with their session. */
  #holdings: Holdings | undefined
  #closed = false

  constructor(options: EngineOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.identity = `zookeeper:${options.chroot}${options.root}`
    this.limits = {
      maxTtlMs: options.maxTtlMs,
      longer: 'zookeeper(driver, servers, { maxTtl }) allows for more',
      driftMs: (ttlMs) => Math.ceil(ttlMs * 0.01) + 2,
    }
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    const known = this.#holdings?.get(owner)
    if (known !== undefined) {
      const [answer] = await this.extend([{ ...request, token: known.token }])
      if (answer?.kind === 'held') return { kind: 'granted', token: known.token }
    }
    const withinMs = this.#withinMs(ttlMs)
    const { seat, holdings } = await this.#readyFor(request, withinMs)
    const sent = instant(this.#clock)
    try {
      const outcome = await attempt(seat, request, withinMs)
      if (outcome.kind === 'refused') return outcome
      holdings.add(request, outcome.entry, sent, outcome.crowded)
      return { kind: 'granted', token: outcome.entry.token }
    } catch (error) {
      seat.remains.add(owner, resources)
      throw failed(error, resources)
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return this.#holdings?.extend(leases) ?? leases.map(() => ({ kind: 'lost' }))
  }

  async release({ resources, owner, ttlMs }: LeaseRef): Promise<Release> {
    const withinMs = this.#withinMs(ttlMs)
    const holding = this.#holdings?.get(owner)
    if (holding !== undefined) this.#holdings?.forget(holding)
    const before = this.#seat
    try {
      const { line } = (await this.#ready(resources, withinMs)).seat
      const ours =
        holding === undefined
          ? await line.removeOwner(resources, owner, withinMs)
          : await line.remove(holding.resources, holding.paths, withinMs, holding.crowded)
      // Whoever waits is next by the servers' own order, so nobody here has to stand back for others.
      return { ours, awaited: 0 }
    } catch (error) {
      before?.remains.add(owner, holding?.resources ?? resources)
      throw failed(error, resources)
    }
  }

  async leave({ resources, owner, token, ttlMs }: LeaseRef): Promise<Extension> {
    const [seat, holdings] = [this.#seat, this.#holdings]
    const holding = holdings?.get(owner)
    if (seat === undefined || holding?.token !== token) return { kind: 'lost' }
    try {
      await seat.line.leave(holding, ttlMs, this.#withinMs(ttlMs))
    } catch (error) {
      if (isCode(error, CODE.noNode)) return { kind: 'lost' }
      // Perhaps it was done. If not, our nodes are there still and go when the ttl is over that they have.
      return { kind: 'unknown', cause: failed(error, resources) }
    }
    holdings?.forget(holding)
    // If we are there by then. If not, whoever next comes for one of the resources removes what is over.
    this.#deadlines.start(ttlMs, () => seat.remains.add(owner, holding.resources))
    return { kind: 'held' }
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const { resources, ttlMs } = request
    const withinMs = this.#withinMs(ttlMs)
    const { seat, holdings } = await this.#readyFor(request, withinMs)
    let entered: Entry | undefined
    try {
      const wait = { signal, withinMs, clock: this.#clock }
      const { entry, since, crowded } = await standInLine(seat, request, wait, (entry) => (entered = entry))
      holdings.add(request, entry, since, crowded)
      return { kind: 'granted', token: entry.token, since }
    } catch (error) {
      await this.#withdraw(seat, request, entered, withinMs)
      signal.throwIfAborted()
      throw failed(error, resources)
    }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const resources = resource === undefined ? [] : [resource]
    const withinMs = this.#withinMs(this.#options.maxTtlMs)
    const { seat } = await this.#ready(resources, withinMs)
    try {
      yield* inspectFolders(seat, resource, withinMs)
    } catch (error) {
      throw failed(error, resources)
    }
  }

  async check(ttlMs: number): Promise<readonly Finding[]> {
    const withinMs = this.#withinMs(this.#options.maxTtlMs)
    const plan = { ...this.#options, ttlMs, withinMs }
    try {
      const { seat } = await this.#ready([], withinMs)
      await seat.session.ready(withinMs)
      return await checkZookeeper(seat, plan)
    } catch (error) {
      return checkZookeeper(failed(error, []), plan)
    }
  }

  async init(): Promise<readonly string[]> {
    const withinMs = this.#withinMs(this.#options.maxTtlMs)
    const { seat } = await this.#ready([], withinMs)
    try {
      const made = await seat.ready(withinMs)
      const swept = await seat.line.sweep(await seat.line.folders(withinMs), withinMs)
      return [
        ...made.map((path) => `made ${path}`),
        ...swept.map((path) => `removed ${path}, left behind empty by a process that died`),
      ]
    } catch (error) {
      throw failed(error, [])
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#holdings?.clear()
    await this.#seat?.session.close()
    this.#deadlines.close()
  }

  async #withdraw(seat: Seat, request: LeaseRequest, entered: Entry | undefined, withinMs: number): Promise<void> {
    const { resources, owner } = request
    try {
      if (entered === undefined) throw new Error('it is not known whether there are nodes, and which')
      await seat.line.remove(resources, entered.paths, withinMs, true)
    } catch {
      seat.remains.add(owner, resources)
    }
  }

  /** The current session, or a new one if the last is over. */
  async #ready(resources: readonly string[], withinMs: number): Promise<Ready> {
    if (this.#closed) throw new EngineError('zookeeper: this engine is closed', resources, { transient: false })
    const current = this.#seat?.session.over === undefined ? this.#seat : undefined
    const seat = current ?? this.#newSeat()
    const holdings = this.#holdings!
    try {
      await seat.ready(withinMs)
    } catch (error) {
      throw failed(error, resources)
    }
    return { seat, holdings }
  }

  async #readyFor({ resources, owner, ttlMs }: LeaseRequest, withinMs: number): Promise<Ready> {
    const ready = await this.#ready(resources, withinMs)
    const { session, remains } = ready.seat
    if (remains.has(owner))
      throw failed(new Error('an earlier attempt of the same owner is still being undone'), resources)
    const mostMs = Math.floor(session.timeoutMs / SESSION_PER_TTL)
    if (ttlMs <= mostMs) return ready
    throw new RangeError(
      `ttl: expected at most ${mostMs} ms, half of the session that these servers grant (${session.timeoutMs} ms), ` +
        `got ${ttlMs}; maxSessionTimeout in their configuration allows for more`,
    )
  }

  #newSeat(): Seat {
    const { newClient, maxTtlMs } = this.#options
    const deadlines = this.#deadlines
    const seat = new Seat(newClient(), {
      ...this.#options,
      sessionMs: SESSION_PER_TTL * maxTtlMs,
      withinMs: this.#withinMs(maxTtlMs),
      deadlines,
    })
    const holdings = new Holdings(seat, { clock: this.#clock, deadlines, withinMs: (ttlMs) => this.#withinMs(ttlMs) })
    seat.session.onReconnected(() => {
      if (seat.session.over !== undefined) holdings.clear()
    })
    this.#seat = seat
    this.#holdings = holdings
    return seat
  }

  /** A quarter of the ttl: a renewal is due after a third, so one can fail and the next still be made in time. */
  #withinMs(ttlMs: number): number {
    return this.#options.requestTimeoutMs ?? Math.min(Math.max(ttlMs / 4, 100), 2500)
  }
}
