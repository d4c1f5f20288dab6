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
  NodeState,
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { KeptPlaces } from '../shared/kept-places.ts'
import { driftOrThrow } from '../shared/limits.ts'
import { attempt } from './attempt.ts'
import type { ZookeeperAcl, ZookeeperClient } from './client.ts'
import { checkZookeeper } from './doctor/index.ts'
import { probeServers } from './doctor/servers.ts'
import { CODE, isCode, zookeeperFailure } from './errors.ts'
import { inspectFolders } from './inspect.ts'
import { waitInQueue } from './queue.ts'
import { SESSION_PER_TTL, SessionScope } from './session-scope.ts'
import type { QueueEntry } from './steps.ts'

export interface ZookeeperPlan {
  readonly newClient: () => ZookeeperClient
  /** `host:port` of each server. */
  readonly servers: readonly string[]
  readonly chroot: string
  readonly root: string
  readonly acl: readonly ZookeeperAcl[]
  readonly maxTtlMs: number
  /** How long a server may take to answer a request about a lease of this ttl. */
  readonly withinMs: (ttlMs: number) => number
  readonly clock: Clock
}

/** A place in the queue, and the session that it belongs to. */
interface ZookeeperPlace {
  readonly scope: SessionScope
  readonly resources: readonly string[]
  readonly owner: string
  readonly entry: QueueEntry
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the number of the transaction that made the lease's znodes (czxid)",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served by process',
  shared: true,
}

export class ZookeeperEngine implements Engine {
  readonly name = 'zookeeper'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #plan: ZookeeperPlan
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #kept: KeptPlaces<ZookeeperPlace>
  #scope: SessionScope | undefined
  #closed = false

  constructor(plan: ZookeeperPlan) {
    this.#plan = plan
    this.#clock = plan.clock
    this.#deadlines = new Deadlines(plan.clock)
    this.#kept = new KeptPlaces(plan.clock, ({ scope, owner, resources }) => scope.cleanup.add(owner, resources))
    this.identity = `zookeeper:${plan.chroot}${plan.root}`
    this.limits = {
      maxTtlMs: plan.maxTtlMs,
      longer: 'zookeeper(driver, servers, { maxTtl }) allows for more',
      driftMs: driftOrThrow(),
    }
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    const known = this.#scope?.holdings.get(owner)
    if (known !== undefined) {
      const [answer] = await this.extend([{ ...request, token: known.token }])
      if (answer?.kind === 'held') return { kind: 'granted', token: known.token }
    }
    const withinMs = this.#plan.withinMs(ttlMs)
    const scope = await this.#readyFor(request, withinMs)
    const sent = instant(this.#clock)
    try {
      const outcome = await attempt(scope, request, withinMs)
      if (outcome.kind === 'refused') return outcome
      scope.holdings.add(request, outcome.entry, sent, outcome.crowded)
      // A reader may be granted beside the place that was kept for it.
      this.#kept.drop(request)
      return { kind: 'granted', token: outcome.entry.token }
    } catch (error) {
      scope.cleanup.add(owner, resources)
      throw zookeeperFailure(error, resources)
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return this.#scope?.holdings.extend(leases) ?? leases.map(() => ({ kind: 'lost' }))
  }

  async release({ resources, owner, ttlMs }: LeaseRef): Promise<Release> {
    const withinMs = this.#plan.withinMs(ttlMs)
    const before = this.#scope
    const holding = before?.holdings.get(owner)
    if (holding !== undefined) before?.holdings.forget(holding)
    try {
      const { steps } = await this.#ready(resources, withinMs)
      const ours =
        holding === undefined
          ? await steps.removeOwner(resources, owner, withinMs)
          : await steps.remove(holding.resources, holding.paths, withinMs, holding.crowded)
      // The servers' own queue decides who is next, so this process need not hold back.
      return { ours, awaited: 0 }
    } catch (error) {
      before?.cleanup.add(owner, holding?.resources ?? resources)
      throw zookeeperFailure(error, resources)
    }
  }

  async leave({ resources, owner, token, ttlMs }: LeaseRef): Promise<Extension> {
    const scope = this.#scope
    const holding = scope?.holdings.get(owner)
    if (scope === undefined || holding?.token !== token) return { kind: 'lost' }
    try {
      await scope.steps.leave(holding, ttlMs, this.#plan.withinMs(ttlMs))
    } catch (error) {
      if (isCode(error, CODE.noNode)) return { kind: 'lost' }
      // Perhaps it was done. If not, our znodes still exist, and go when their ttl is over.
      return { kind: 'unknown', cause: zookeeperFailure(error, resources) }
    }
    scope.holdings.forget(holding)
    // Removes it if this process still runs by then. If not, the next attempt at one of the resources does.
    this.#deadlines.start(ttlMs, () => scope.cleanup.add(owner, holding.resources))
    return { kind: 'held' }
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const { resources, ttlMs } = request
    const withinMs = this.#plan.withinMs(ttlMs)
    const scope = await this.#readyFor(request, withinMs)
    const kept = this.#kept.take(request)
    // Its znodes have gone with its session.
    const before = kept?.scope === scope ? kept : undefined
    const place = { ...request, owner: before?.owner ?? request.owner }
    const { owner } = place
    let entered = before?.entry
    try {
      const wait = { signal, withinMs, clock: this.#clock }
      const turn = await waitInQueue(scope, place, wait, entered, (entry) => (entered = entry))
      const { entry, since, crowded } = turn
      scope.holdings.add(place, entry, since, crowded)
      return { kind: 'granted', token: entry.token, since, owner }
    } catch (error) {
      if (signal.aborted && entered !== undefined && request.hasHeir?.() === true)
        this.#kept.keep(request, { scope, resources, owner, entry: entered })
      else await this.#withdraw(scope, place, entered, withinMs)
      signal.throwIfAborted()
      throw zookeeperFailure(error, resources)
    }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const resources = resource === undefined ? [] : [resource]
    const withinMs = this.#plan.withinMs(this.#plan.maxTtlMs)
    const scope = await this.#ready(resources, withinMs)
    try {
      yield* inspectFolders(scope, resource, withinMs)
    } catch (error) {
      throw zookeeperFailure(error, resources)
    }
  }

  async check(ttlMs: number): Promise<readonly Finding[]> {
    const withinMs = this.#plan.withinMs(this.#plan.maxTtlMs)
    const plan = { ...this.#plan, ttlMs, withinMs }
    try {
      const scope = await this.#ready([], withinMs)
      await scope.session.ready(withinMs)
      return await checkZookeeper(scope, plan)
    } catch (error) {
      return checkZookeeper(zookeeperFailure(error, []), plan)
    }
  }

  probe(): Promise<readonly NodeState[]> {
    return probeServers({ ...this.#plan, withinMs: this.#plan.withinMs(this.#plan.maxTtlMs) })
  }

  async init(): Promise<readonly string[]> {
    const withinMs = this.#plan.withinMs(this.#plan.maxTtlMs)
    const scope = await this.#ready([], withinMs)
    try {
      const made = await scope.ready(withinMs)
      const swept = await scope.steps.sweep(await scope.steps.folders(withinMs), withinMs)
      return [
        ...made.map((path) => `made ${path}`),
        ...swept.map((path) => `removed ${path}, which a process that died had left empty`),
      ]
    } catch (error) {
      throw zookeeperFailure(error, [])
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#kept.close()
    this.#scope?.holdings.clear()
    await this.#scope?.session.close()
    this.#deadlines.close()
  }

  async #withdraw(
    scope: SessionScope,
    request: LeaseRequest,
    entered: QueueEntry | undefined,
    withinMs: number,
  ): Promise<void> {
    const { resources, owner } = request
    try {
      if (entered === undefined) throw new Error('it is not known whether there are znodes, and which')
      await scope.steps.remove(resources, entered.paths, withinMs, true)
    } catch {
      scope.cleanup.add(owner, resources)
    }
  }

  /** Returns the current session, or a new one if the last has ended. */
  async #ready(resources: readonly string[], withinMs: number): Promise<SessionScope> {
    if (this.#closed)
      throw new EngineError('zookeeper: this engine is closed; make a new one', resources, { transient: false })
    const current = this.#scope?.session.over === undefined ? this.#scope : undefined
    const scope = current ?? new SessionScope(this.#plan, this.#deadlines)
    this.#scope = scope
    try {
      await scope.ready(withinMs)
    } catch (error) {
      throw zookeeperFailure(error, resources)
    }
    return scope
  }

  async #readyFor({ resources, owner, ttlMs }: LeaseRequest, withinMs: number): Promise<SessionScope> {
    const scope = await this.#ready(resources, withinMs)
    const { session, cleanup } = scope
    if (cleanup.has(owner))
      throw zookeeperFailure(new Error('an earlier attempt of the same owner is still being undone'), resources)
    const mostMs = Math.floor(session.timeoutMs / SESSION_PER_TTL)
    if (ttlMs <= mostMs) return scope
    throw new RangeError(
      `ttl: expected at most ${mostMs} ms, half of the session that these servers grant (${session.timeoutMs} ms), ` +
        `got ${ttlMs}; maxSessionTimeout in their configuration allows for more`,
    )
  }
}
