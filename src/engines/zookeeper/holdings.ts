import { elapsedMs, instant, type Clock, type Instant } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Extension, LeaseRef, LeaseRequest } from '../../engine.ts'
import { CODE, isCode } from './driver.ts'
import { failed } from './failed.ts'
import type { Entry } from './line.ts'
import type { Seat } from './seat.ts'

/** A lease of ours. */
export interface Holding extends Entry {
  readonly resources: readonly string[]
  readonly owner: string
  readonly since: Instant
  /** Others stood behind us when it became ours. */
  readonly crowded: boolean
}

interface Claim {
  readonly index: number
  readonly holding: Holding
  readonly ttlMs: number
}

/** What one transaction carries at most: a server takes a megabyte by default. */
const BATCH_BYTES = 200_000
/** Of each node: the note, and what the protocol adds. */
const NODE_BYTES = 100

const SILENT =
  'this process was silent for so long that the leader may not have heard of its session lately; to be proved again'

/** The leases of one session. */
export class Holdings {
  readonly #seat: Seat
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #withinMs: (ttlMs: number) => number
  readonly #holdings = new Map<string, Holding>()
  readonly #ends = new Map<Holding, Deadline>()

  constructor(seat: Seat, options: { clock: Clock; deadlines: Deadlines; withinMs: (ttlMs: number) => number }) {
    this.#seat = seat
    this.#clock = options.clock
    this.#deadlines = options.deadlines
    this.#withinMs = options.withinMs
  }

  get(owner: string): Holding | undefined {
    return this.#holdings.get(owner)
  }

  /** From here on it is ours, and ends with its ttl unless it is extended. Throws if the session may not last so long. */
  add(request: LeaseRequest, { paths, token }: Entry, since: Instant, crowded: boolean): void {
    const { resources, owner, ttlMs } = request
    const { session } = this.#seat
    if (session.over !== undefined) throw session.over
    if (!session.covers(since, ttlMs)) throw new Error(SILENT)
    const holding = { resources, owner, paths, token, since, crowded }
    this.#holdings.set(owner, holding)
    this.#endAfter(holding, ttlMs)
  }

  /** It is no longer ours to extend. Its nodes are not touched. */
  forget(holding: Holding): void {
    this.#ends.get(holding)?.cancel()
    this.#ends.delete(holding)
    if (this.#has(holding)) this.#holdings.delete(holding.owner)
  }

  clear(): void {
    for (const holding of this.#holdings.values()) this.forget(holding)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const since = instant(this.#clock)
    const answers: Extension[] = leases.map(() => ({ kind: 'lost' }))
    const claims = leases.flatMap(({ owner, token, ttlMs }, index) => {
      const holding = this.#holdings.get(owner)
      return holding?.token === token ? [{ index, holding, ttlMs }] : []
    })
    for (const batch of batches(claims)) {
      await this.#prove(batch, since, answers)
      // Its time was up meanwhile, or the session is over.
      for (const { index, holding } of batch) if (!this.#has(holding)) answers[index] = { kind: 'lost' }
    }
    return answers
  }

  async #prove(batch: readonly Claim[], since: Instant, answers: Extension[]): Promise<void> {
    const { nodes, session, remains } = this.#seat
    const withinMs = this.#withinMs(Math.min(...batch.map(({ ttlMs }) => ttlMs)))
    for (let claims = batch; claims.length > 0;) {
      try {
        await nodes.write(
          claims.flatMap((claim) => this.#notes(claim)),
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
          for (const { index } of claims) answers[index] = { kind: 'unknown', cause: failed(error, []) }
          return
        }
        for (const holding of lost) {
          this.forget(holding)
          // Of several nodes one is gone: the others are worth nothing any more.
          if (holding.paths.length > 1) remains.add(holding.owner, holding.resources)
        }
        claims = claims.filter(({ holding }) => !lost.has(holding))
      }
    }
  }

  #notes({ holding, ttlMs }: Claim) {
    const note = { ttlMs, heldMs: Math.round(elapsedMs(this.#clock, holding.since)) }
    return holding.paths.map((path) => [path, note] as const)
  }

  /** Those whose nodes are gone, by the servers' word. */
  async #lost(claims: readonly Claim[], error: unknown, withinMs: number): Promise<ReadonlySet<Holding>> {
    if (!isCode(error, CODE.noNode)) return new Set()
    const paths = claims.flatMap(({ holding }) => holding.paths)
    const missing = await this.#seat.line.missing(paths, withinMs).catch(() => new Set<string>())
    const lost = claims.filter(({ holding }) => holding.paths.some((path) => missing.has(path)))
    return new Set(lost.map(({ holding }) => holding))
  }

  #has(holding: Holding): boolean {
    return this.#holdings.get(holding.owner) === holding
  }

  /** The session lives on by its signs of life, so the end of a lease that nobody extends is ours to make. */
  #endAfter(holding: Holding, ttlMs: number): void {
    this.#ends.get(holding)?.cancel()
    const end = this.#deadlines.start(ttlMs, () => {
      this.forget(holding)
      this.#seat.remains.add(holding.owner, holding.resources)
    })
    this.#ends.set(holding, end)
  }
}

function* batches(claims: readonly Claim[]): Iterable<readonly Claim[]> {
  let batch: Claim[] = []
  let bytes = 0
  for (const claim of claims) {
    const size = claim.holding.paths.reduce((sum, path) => sum + path.length + NODE_BYTES, 0)
    if (batch.length > 0 && bytes + size > BATCH_BYTES) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(claim)
    bytes += size
  }
  if (batch.length > 0) yield batch
}
