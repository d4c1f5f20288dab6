import { elapsedMs, instant, type Instant } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Extension, LeaseRef, LeaseRequest } from '../../engine.ts'
import { batches } from '../shared/together.ts'
import type { ZookeeperPlan } from './engine.ts'
import { CODE, isCode, zookeeperFailure } from './errors.ts'
import type { SessionScope } from './session-scope.ts'
import type { QueueEntry } from './steps.ts'

/** A lease of ours. */
export interface ZookeeperHolding extends QueueEntry {
  readonly resources: readonly string[]
  readonly owner: string
  readonly since: Instant
  /** Others waited behind us when it became ours. */
  readonly crowded: boolean
}

interface RenewalClaim {
  readonly index: number
  readonly holding: ZookeeperHolding
  readonly ttlMs: number
}

/** One transaction carries at most this much: a server takes a megabyte by default. */
const BATCH_BYTES = 200_000
/** For each znode: its data, and what the protocol adds. */
const ZNODE_BYTES = 100

const SILENT =
  'this process was silent for too long: the leader may not have heard of its session lately, so the lease has to be proved again'

/** The leases of one session. */
export class ZookeeperHoldings {
  readonly #scope: SessionScope
  readonly #plan: ZookeeperPlan
  readonly #deadlines: Deadlines
  readonly #holdings = new Map<string, ZookeeperHolding>()
  readonly #ends = new Map<ZookeeperHolding, Deadline>()

  constructor(scope: SessionScope, plan: ZookeeperPlan, deadlines: Deadlines) {
    this.#scope = scope
    this.#plan = plan
    this.#deadlines = deadlines
  }

  get(owner: string): ZookeeperHolding | undefined {
    return this.#holdings.get(owner)
  }

  /** From here on the lease is ours, and ends with its ttl unless it is extended. Throws if the session may end before. */
  add(request: LeaseRequest, { paths, token }: QueueEntry, since: Instant, crowded: boolean): void {
    const { resources, owner, ttlMs } = request
    const { session } = this.#scope
    if (session.over !== undefined) throw session.over
    if (!session.covers(since, ttlMs)) throw new Error(SILENT)
    const holding = { resources, owner, paths, token, since, crowded }
    this.#holdings.set(owner, holding)
    this.#endAfter(holding, ttlMs)
  }

  /** The lease is no longer ours to extend. Its znodes stay as they are. */
  forget(holding: ZookeeperHolding): void {
    this.#ends.get(holding)?.cancel()
    this.#ends.delete(holding)
    if (this.#has(holding)) this.#holdings.delete(holding.owner)
  }

  clear(): void {
    for (const holding of this.#holdings.values()) this.forget(holding)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const since = instant(this.#plan.clock)
    const answers: Extension[] = leases.map(() => ({ kind: 'lost' }))
    const claims = leases.flatMap(({ owner, token, ttlMs }, index) => {
      const holding = this.#holdings.get(owner)
      return holding?.token === token ? [{ index, holding, ttlMs }] : []
    })
    for (const batch of batches(claims, BATCH_BYTES, bytesOf)) {
      await this.#prove(batch, since, answers)
      // Its time was up meanwhile, or the session has ended.
      for (const { index, holding } of batch) if (!this.#has(holding)) answers[index] = { kind: 'lost' }
    }
    return answers
  }

  async #prove(batch: readonly RenewalClaim[], since: Instant, answers: Extension[]): Promise<void> {
    const { znodes, session, cleanup } = this.#scope
    const withinMs = this.#plan.withinMs(Math.min(...batch.map(({ ttlMs }) => ttlMs)))
    for (let claims = batch; claims.length > 0;) {
      try {
        await znodes.write(
          claims.flatMap((claim) => this.#data(claim)),
          withinMs,
        )
        for (const { index, holding, ttlMs } of claims) {
          if (!session.covers(since, ttlMs)) answers[index] = { kind: 'unknown', cause: new Error(SILENT) }
          else if (this.#has(holding)) {
            answers[index] = { kind: 'held' }
            this.#endAfter(holding, ttlMs)
          }
        }
        return
      } catch (error) {
        const lost = await this.#lost(claims, error, withinMs)
        if (lost.size === 0) {
          for (const { index } of claims) answers[index] = { kind: 'unknown', cause: zookeeperFailure(error, []) }
          return
        }
        for (const holding of lost) {
          this.forget(holding)
          // One of several znodes is gone: the others are worth nothing any more.
          if (holding.paths.length > 1) cleanup.add(holding.owner, holding.resources)
        }
        claims = claims.filter(({ holding }) => !lost.has(holding))
      }
    }
  }

  #data({ holding, ttlMs }: RenewalClaim) {
    const data = { ttlMs, heldMs: Math.round(elapsedMs(this.#plan.clock, holding.since)) }
    return holding.paths.map((path) => [path, data] as const)
  }

  /** Returns the leases whose znodes are gone, as the servers say. */
  async #lost(
    claims: readonly RenewalClaim[],
    error: unknown,
    withinMs: number,
  ): Promise<ReadonlySet<ZookeeperHolding>> {
    if (!isCode(error, CODE.noNode)) return new Set()
    const paths = claims.flatMap(({ holding }) => holding.paths)
    const missing = await this.#scope.steps.missing(paths, withinMs).catch(() => new Set<string>())
    const lost = claims.filter(({ holding }) => holding.paths.some((path) => missing.has(path)))
    return new Set(lost.map(({ holding }) => holding))
  }

  #has(holding: ZookeeperHolding): boolean {
    return this.#holdings.get(holding.owner) === holding
  }

  /** The session goes on by its heartbeats, so this process has to end a lease that nobody extends. */
  #endAfter(holding: ZookeeperHolding, ttlMs: number): void {
    this.#ends.get(holding)?.cancel()
    const end = this.#deadlines.start(ttlMs, () => {
      this.forget(holding)
      this.#scope.cleanup.add(holding.owner, holding.resources)
    })
    this.#ends.set(holding, end)
  }
}

function bytesOf({ holding: { paths } }: RenewalClaim): number {
  return paths.reduce((sum, path) => sum + path.length + ZNODE_BYTES, 0)
}
