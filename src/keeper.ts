import { instant, type Clock, type Timer } from './clock.ts'
import type { Engine, Extension, LeaseRef } from './engine.ts'
import { EngineError, LeaseLostError, type LossReason } from './errors.ts'
import { tell, type Tell } from './events.ts'
import type { LeaseRecord } from './lease.ts'

/** Leases that one call to the engine renews; bounds the time a server spends in one script. */
const BATCH = 200
/** Leases due within this part of their ttl are renewed together with one that is due now, so that they stay together. */
const EARLY_PART = 1 / 12
/** Timers stand still while a machine sleeps. After it wakes, the deadlines are looked at within this time. */
const LONGEST_NAP_MS = 1000
/** A timer this late means that the process was stopped or its event loop blocked. */
const STALL_MS = 100

export interface KeeperHooks {
  ended(record: LeaseRecord): void
  /** It is about to be renewed. */
  renewing(record: LeaseRecord): void
}

/** Renews leases and ends their signal in time: one timer and few commands for any number of them. */
export class Keeper {
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #observer: Tell | undefined
  readonly #hooks: KeeperHooks
  readonly #records = new Set<LeaseRecord>()
  #timer: Timer | undefined
  #timerAtMs = Infinity

  constructor(engine: Engine, clock: Clock, observer: Tell | undefined, hooks: KeeperHooks) {
    this.#engine = engine
    this.#clock = clock
    this.#observer = observer
    this.#hooks = hooks
    engine.onDoubt?.(() => this.#proveAll())
  }

  get records(): ReadonlySet<LeaseRecord> {
    return this.#records
  }

  add(record: LeaseRecord): void {
    this.#records.add(record)
    this.#wakeFor(record)
  }

  /** Ends the lease here; the caller tells the engine. False if it was over already. */
  end(record: LeaseRecord, reason: LossReason, cause?: unknown): boolean {
    if (record.over !== undefined) return false
    this.#records.delete(record)
    record.end(reason, cause)
    if (this.#observer !== undefined && reason !== 'released' && reason !== 'closed') {
      const { resources, owner, token } = record
      tell(this.#observer, { type: 'lost', resources, owner, token, reason, heldMs: record.heldMs() })
    }
    this.#hooks.ended(record)
    return true
  }

  async extend(record: LeaseRecord, ttlMs: number): Promise<void> {
    while (record.extending !== undefined) await record.extending
    if (record.remainingMs() <= 0) throw new LeaseLostError(record.resources, record.over ?? 'expired')
    const [answer] = await this.#extendAll([record], ttlMs)
    if (record.over !== undefined) throw new LeaseLostError(record.resources, record.over)
    if (answer?.kind === 'unknown') {
      throw new EngineError(`could not extend: ${answer.cause.message}`, record.resources, {
        cause: answer.cause,
      })
    }
  }

  /** The last extension: the lease ends by itself then, also if this process is gone by that time. */
  async leave(record: LeaseRecord, ttlMs: number): Promise<void> {
    if (this.#engine.leave === undefined) return this.extend(record, ttlMs)
    // A renewal on its way would land later and bind the lease to this process again.
    while (record.extending !== undefined) await record.extending
    const { resources, owner, token } = record
    await this.#engine.leave({ resources, owner, token, ttlMs })
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAtMs = Infinity
  }

  /** As if all renewals were due; those under way will tell by themselves. */
  #proveAll(): void {
    for (const record of this.#records) if (this.#renewable(record)) record.renewAfterMs = 0
    if (this.#records.size > 0) this.#wakeIn(this.#clock.monotonicMs(), 0)
  }

  /** Time until this lease wants attention: its end, or before that its renewal. */
  #nextMs(record: LeaseRecord): number {
    const endMs = this.#signalInMs(record)
    if (!this.#renewable(record)) return endMs
    return Math.min(endMs, record.renewAfterMs - record.elapsedMs())
  }

  /**
   * The signal comes a little before the end of validity, since timers fire late and the work needs a moment to stop:
   * 2 % of the ttl, between 2 ms (one late timer tick) and 250 ms (of a long lease, more would be a waste).
   */
  #signalInMs(record: LeaseRecord): number {
    return record.remainingMs() - Math.max(2, Math.min(record.ttlMs * 0.02, 250))
  }

  #renewable(record: LeaseRecord): boolean {
    return record.renew && record.extending === undefined
  }

  #wakeFor(record: LeaseRecord): void {
    const nowMs = this.#clock.monotonicMs()
    this.#wakeIn(nowMs, this.#nextMs(record))
  }

  /**
   * `nowMs` was read before the delay was computed: if the process stands still in between or before the timer is set, a
   * delay counted from the end of the pause would let the signal come as much too late.
   */
  #wakeIn(nowMs: number, delayMs: number): void {
    // Timers have whole milliseconds, one at least: a fraction less would find nothing due and be set again at once, and
    // one that is due within the next must not be replaced by a new one, which comes after it.
    const wholeMs = Math.min(Math.max(Math.ceil(delayMs), 1), LONGEST_NAP_MS)
    const atMs = nowMs + wholeMs
    if (atMs >= this.#timerAtMs) return
    this.#timer?.cancel()
    this.#timerAtMs = atMs
    const leftMs = Math.ceil(atMs - this.#clock.monotonicMs())
    this.#timer = this.#clock.timer(() => this.#tick(), Math.max(leftMs, 0), true)
  }

  #tick(): void {
    const lateMs = this.#clock.monotonicMs() - this.#timerAtMs
    this.#timer = undefined
    this.#timerAtMs = Infinity
    const leases = this.#records.size
    // After a stall the deadlines come first: whoever holds a lease that is over must hear of it before anything else.
    for (const record of this.#records) {
      if (this.#signalInMs(record) <= 0) this.end(record, this.#reasonAtDeadline(record), record.doubt)
    }
    if (lateMs > STALL_MS && leases > 0 && this.#observer !== undefined) {
      tell(this.#observer, { type: 'stalled', lateMs, leases })
    }
    this.#renewDue()
    const nowMs = this.#clock.monotonicMs()
    let nextMs = Infinity
    for (const record of this.#records) nextMs = Math.min(nextMs, this.#nextMs(record))
    if (nextMs < Infinity) this.#wakeIn(nowMs, nextMs)
  }

  #reasonAtDeadline(record: LeaseRecord): LossReason {
    return record.doubt === undefined || record.holdLeftMs() <= 0 ? 'expired' : 'unreachable'
  }

  #renewDue(): void {
    const early: LeaseRecord[] = []
    let anyDue = false
    for (const record of this.#records) {
      if (!this.#renewable(record)) continue
      const leftMs = record.renewAfterMs - record.elapsedMs()
      if (leftMs <= record.ttlMs * EARLY_PART) early.push(record)
      if (leftMs <= 0) anyDue = true
    }
    if (!anyDue) return
    for (const record of early) this.#hooks.renewing(record)
    for (let from = 0; from < early.length; from += BATCH) {
      // Never rejects: #extendAll turns every failure into a doubt or a loss of the records themselves.
      void this.#extendAll(early.slice(from, from + BATCH))
    }
  }

  async #extendAll(records: readonly LeaseRecord[], newTtlMs?: number): Promise<readonly Extension[]> {
    const since = instant(this.#clock)
    const refs = records.map(({ resources, owner, token, ttlMs }) => ({
      resources,
      owner,
      token,
      ttlMs: newTtlMs ?? ttlMs,
    }))
    const call = this.#ask(refs)
    for (const record of records) {
      if (newTtlMs !== undefined) record.mayEndAt(since, newTtlMs)
      record.extending = call
      if (newTtlMs !== undefined) this.#wakeFor(record)
    }
    const answers = await call
    for (const [index, record] of records.entries()) {
      record.extending = undefined
      this.#settle(
        record,
        refs[index]!.ttlMs,
        since,
        answers[index] ?? doubtful(new Error('the engine gave no answer')),
      )
    }
    return answers
  }

  /** An engine that breaks its contract and throws must not stop the renewal of everyone else's leases. */
  async #ask(refs: readonly LeaseRef[]): Promise<readonly Extension[]> {
    try {
      return await this.#engine.extend(refs)
    } catch (cause) {
      return refs.map(() => doubtful(cause))
    }
  }

  #settle(record: LeaseRecord, ttlMs: number, since: ReturnType<typeof instant>, answer: Extension): void {
    if (record.over !== undefined) return
    const { resources, owner, token } = record
    if (answer.kind === 'lost') {
      this.end(record, 'stolen')
      return
    }
    if (answer.kind === 'held') {
      const slackMs = record.remainingMs()
      // Someone may have seen `held` turn false already; a lease that is over stays over.
      if (slackMs <= 0) {
        this.end(record, this.#reasonAtDeadline(record), record.doubt)
        return
      }
      const ofMs = record.ttlMs
      record.renewed(since, ttlMs)
      if (this.#observer !== undefined) {
        tell(this.#observer, { type: 'renewed', resources, owner, token, slackMs, ttlMs: ofMs })
      }
    } else {
      record.doubt = answer.cause
      // Within the slack there is time for several tries; a sixth of the ttl apart, but a second at most.
      const retryMs = Math.min(record.ttlMs / 6, record.remainingMs() / 3, 1000)
      record.renewAfterMs = record.elapsedMs() + retryMs
      if (this.#observer !== undefined) {
        const remainingMs = record.remainingMs()
        tell(this.#observer, { type: 'doubtful', resources, owner, token, cause: answer.cause, remainingMs })
      }
    }
    this.#wakeFor(record)
  }
}

function doubtful(cause: unknown): Extension {
  return { kind: 'unknown', cause: cause instanceof Error ? cause : new Error(String(cause)) }
}
