import { given } from '../../arguments.ts'
import type { Clock } from '../../clock.ts'
import type { Engine, LeaseInfo } from '../../engine.ts'
import { messageOf } from '../../errors.ts'
import { shortestTtlMs } from '../../lease.ts'
import { resourceName } from '../../options.ts'
import { forceRelease } from '../../status.ts'
import type { Visitor } from './access.ts'
import type { Audit, AuditEntry } from './audit.ts'
import { Refused } from './problem.ts'
import type { ExtendAnswer, ReleaseAnswer } from '../protocol.ts'
import { inspectOne } from './scanner.ts'
import type { Pages } from './pages.ts'

interface ForcingPlan {
  readonly clock: Clock
  readonly redact: (text: string) => string
  readonly pages: Pages
  readonly audit: Audit
  /** What is the same in all entries. */
  readonly about: Pick<AuditEntry, 'engine'>
}

type ForcedAction = Omit<AuditEntry, 'atMs' | 'outcome' | 'why' | 'unsaid'>

/** Ends and extends the leases of others, for those who may. */
export class Forcing {
  readonly #engine: Engine
  readonly #plan: ForcingPlan

  constructor(engine: Engine, plan: ForcingPlan) {
    this.#engine = engine
    this.#plan = plan
  }

  get limits(): { readonly minTtlMs: number; readonly maxTtlMs: number } {
    return { minTtlMs: shortestTtlMs(this.#engine.limits), maxTtlMs: this.#engine.limits.maxTtlMs }
  }

  async release(body: unknown, visitor: Visitor): Promise<ReleaseAnswer> {
    const { resource, token, owner } = leaseMeant(body)
    const about = { action: 'release', resource, token, ...whoOf(visitor) } as const
    const ours = await this.#done(about, owner, async (lease) => {
      const ours = await forceRelease(this.#engine, resource, { token: lease.token, owner: lease.owner })
      if (ours) this.#plan.pages.board.forced(lease)
      return ours
    })
    return { ours }
  }

  async extend(body: unknown, visitor: Visitor): Promise<ExtendAnswer> {
    const { resource, token, owner } = leaseMeant(body)
    const ttlMs = this.#ttlOf(body)
    const about = { action: 'extend', resource, token, ttlMs, ...whoOf(visitor) } as const
    const held = await this.#done(about, owner, async (lease) => {
      // The engine sets the time that is left. The holder counts on what it was granted: with less, a second one could be
      // let in while the first still believes. A renewal between our look and our extension counts for as much as any before.
      const leastMs = Math.max(lease.remainingMs ?? Infinity, this.#plan.pages.board.longestMs(lease))
      if (leastMs === Infinity) throw new Refused(409, 'it has no end that could be moved')
      if (ttlMs < leastMs)
        throw new Refused(409, `the holder may count on ${Math.ceil(leastMs)} ms, so that is the least`)
      const ref = { resources: [resource], owner: lease.owner, token: lease.token, shared: lease.shared ?? false }
      const [extension] = await this.#engine.extend([{ ...ref, ttlMs }])
      if (extension?.kind === 'unknown') throw extension.cause
      const isHeld = extension?.kind === 'held'
      if (isHeld) this.#plan.pages.board.extended(lease, ttlMs)
      return isHeld
    })
    return { held }
  }

  /** Finds out whose lease it is, lets it be done unless it is another one by now, and writes down what came of it. */
  async #done(
    about: ForcedAction,
    meant: string | undefined,
    force: (lease: LeaseInfo) => Promise<boolean>,
  ): Promise<boolean> {
    const { clock, audit, pages, redact } = this.#plan
    let owner = meant
    const note = (outcome: AuditEntry['outcome'], why?: string): void =>
      audit.add({ ...this.#plan.about, ...about, outcome, ...given({ owner, why }) })
    try {
      const leases = await inspectOne(this.#engine, clock, about.resource!)
      owner ??= leases[0]?.owner
      const [lease, ...others] = leases.filter((lease) => {
        return String(lease.token) === about.token && lease.owner === (meant ?? lease.owner)
      })
      if (others.length > 0)
        throw new Refused(409, 'several share it with this token, so owner must say which is meant')
      const isDone = lease !== undefined && (await force(lease))
      note(isDone ? 'done' : 'not held')
      pages.flush()
      return isDone
    } catch (error) {
      if (error instanceof Refused) {
        note('refused', error.message)
        throw error
      }
      const why = redact(messageOf(error))
      note('failed', why)
      throw new Refused(503, `the engine could not do it, or not say so: ${why}`, { 'retry-after': '1' })
    }
  }

  #ttlOf(body: unknown): number {
    const ttlMs: unknown = Reflect.get(body as object, 'ttlMs')
    const { minTtlMs, maxTtlMs } = this.limits
    if (typeof ttlMs !== 'number' || !Number.isInteger(ttlMs) || ttlMs < minTtlMs || ttlMs > maxTtlMs)
      throw new Refused(400, `ttlMs: expected whole milliseconds from ${minTtlMs} to ${maxTtlMs}`)
    return ttlMs
  }
}

function leaseMeant(body: unknown): { resource: string; token: string; owner: string | undefined } {
  if (typeof body !== 'object' || body === null) throw new Refused(400, 'expected a JSON object')
  const { resource, token, owner } = body as { resource?: unknown; token?: unknown; owner?: unknown }
  if (typeof token !== 'string' || !/^\d{1,40}$/.test(token))
    throw new Refused(400, 'token: expected a decimal number as a string')
  if (owner !== undefined && (typeof owner !== 'string' || owner === ''))
    throw new Refused(400, 'owner: expected the owner of a lease, or nothing')
  return { resource: nameOrRefuse(resource), token, owner }
}

export function nameOrRefuse(name: unknown): string {
  try {
    return resourceName(name)
  } catch (error) {
    throw new Refused(400, (error as Error).message)
  }
}

export function whoOf({ who, role, remoteAddress }: Visitor): Pick<AuditEntry, 'who' | 'role' | 'remoteAddress'> {
  return { who, role, ...given({ remoteAddress }) }
}
