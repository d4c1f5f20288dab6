import { instant, type Clock, type Timer } from './clock.ts'
import type { Engine, Extension, LeaseRef } from './engine.ts'
import { asError, EngineError, LeaseLostError, type LossReason } from './errors.ts'
import type { Tell } from './events.ts'
import { Handles } from './handles.ts'
import type { HeldLeases } from './held.ts'
import type { Lease } from './lease.ts'
import type { LeaseRecord } from './lease-record.ts'
import type { Settings } from './options.ts'
import type { Queue } from './queue.ts'
import type { Waiter } from './waiter.ts'

/** How many leases one call to the engine renews. This bounds the time that a server spends in one script. */
const BATCH = 200
/** Leases that are due within this part of their ttl are renewed together with one that is due now, and stay together. */
const EARLY_PART = 1 / 12
/** Timers stand still while a machine sleeps. After it wakes, the deadlines are checked within this time. */
const LONGEST_NAP_MS = 1000
/** A timer this late means that the process was stopped or its event loop blocked. */
const STALL_MS = 100

/** Renews leases and ends their signal in time: one timer and few commands for any number of them. */
export class Keeper {
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #tell: Tell | undefined
  readonly #held: HeldLeases
  readonly #queue: Queue<Waiter>
  readonly #giveBack: (record: LeaseRecord) => void
  readonly #handles = new Handles((record) => void this.end(record, 'abandoned'))
  #timer: Timer | undefined
  #timerAtMs = Infinity

  /** `giveBack` releases in the background. */
  constructor(
    engine: Engine,
    { clock, tell }: Settings,
    held: HeldLeases,
    queue: Queue<Waiter>,
    giveBack: (record: LeaseRecord) => void,
  ) {
    this.#engine = engine
    this.#clock = clock
    this.#tell = tell
    this.#held = held
    this.#queue = queue
    this.#giveBack = giveBack
    engine.onDoubt?.(() => this.#proveAll())
  }

  add(record: LeaseRecord): void {
    this.#held.add(record)
    this.#wakeFor(record)
  }

  /** Ends the lease in this process; the caller releases it on the engine. False if it was over already. */
  end(record: LeaseRecord, reason: LossReason, cause?: unknown): boolean {
    if (record.over !== undefined) return false
    this.#held.delete(record)
    this.#handles.forget(record)
    record.end(reason, cause)
    if (reason !== 'released' && reason !== 'closed') {
      const { resources, owner, token } = record
      const ending = { resources, owner, token, heldMs: record.heldMs() }
      this.#tell?.(reason === 'moved' ? { type: 'moved', ...ending } : { type: 'lost', reason, ...ending })
    }
    // A release wakes the next waiter itself, once the server has answered.
    if (reason !== 'released') this.#queue.wake(record.resources, 0)
    return true
  }

  async extend(record: LeaseRecord, ttlMs: number): Promise<void> {
    while (record.extending !== undefined) await record.extending
    if (record.remainingMs() <= 0) throw new LeaseLostError(record.resources, record.why())
    // A shorter ttl would end the lease within `atLeast` if this process dies or is cut off from here on.
    const [answer] = await this.#extendAll([record], Math.max(ttlMs, Math.ceil(record.keepLeftMs())))
    if (record.over !== undefined) throw new LeaseLostError(record.resources, record.over)
    if (answer?.kind === 'unknown') {
      throw failed('extend', record, answer.cause)
    }
  }

  /** Resolves at once where there is no doubt, and otherwise with the next renewal that is proved: one is due now. */
  prove(record: LeaseRecord): Promise<void> {
    if (!record.isDoubtful) return Promise.resolve()
    record.renewAfterMs = 0
    this.#wakeFor(record)
    return record.nextProof()
  }

  /**
   * The last extension, for the rest of the time that the lease must be kept. It then ends by itself, also if this process is
   * gone by that time.
   */
  async leave(record: LeaseRecord, leastMs: number, loss: LossReason = 'unnoticed'): Promise<Extension> {
    this.stopRenewing(record)
    // A renewal under way would arrive later and bind the lease to this process again.
    while (record.extending !== undefined) await record.extending
    if (record.over !== undefined && record.over !== 'closed') return { kind: 'lost' }
    // Engines take whole milliseconds; every other ttl has been rounded up already.
    const ttlMs = Math.ceil(Math.max(record.keepLeftMs(), leastMs))
    if (this.#engine.leave === undefined) return (await this.#extendAll([record], ttlMs, loss))[0] ?? NO_ANSWER
    const { resources, owner, token } = record
    record.mayEndAt(instant(this.#clock), ttlMs)
    const call = this.#engine.leave({ resources, owner, token, ttlMs }).catch(doubtful)
    record.extending = call
    const answer = await call
    record.extending = undefined
    if (answer.kind === 'lost') this.end(record, loss)
    // Like any extension: it may come after a later one, and shorten it.
    if (answer.kind === 'unknown') record.doubted(answer.cause, ttlMs)
    return answer
  }

  /** From now on it runs out by itself, and may be dropped. */
  stopRenewing(record: LeaseRecord): void {
    record.renew = false
    this.#handles.forget(record)
  }

  /**
   * The last extension, for the whole ttl, of a lease that is to move. If that cannot be proved it goes on here as before, and
   * so does the watch over its `handle`.
   */
  async prepareMove(record: LeaseRecord, handle: Lease): Promise<void> {
    const { renew, resources } = record
    const since = instant(this.#clock)
    const answer = await this.leave(record, record.ttlMs, 'stolen')
    if (answer.kind === 'lost' || record.remainingMs() <= 0) throw new LeaseLostError(resources, record.why())
    if (answer.kind === 'held') return record.renewed(since, record.ttlMs)
    Object.assign(record, { renew, handle })
    this.#wakeFor(record)
    throw failed('hand off', record, answer.cause)
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAtMs = Infinity
  }

  /** Makes all renewals due now, except for those that are under way and will bring an answer anyway. */
  #proveAll(): void {
    for (const record of this.#held) if (this.#renewable(record)) record.renewAfterMs = 0
    if (this.#held.size > 0) this.#wakeIn(this.#clock.monotonicMs(), 0)
  }

  /** The time until the end of this lease, or until its renewal if that comes first. */
  #nextMs(record: LeaseRecord): number {
    const endMs = this.#signalInMs(record)
    if (!this.#renewable(record)) return endMs
    return Math.min(endMs, record.renewAfterMs - record.elapsedMs())
  }

  /**
   * The signal aborts a little before the end of validity, because timers fire late and the work needs a moment to stop:
   * 2 % of the ttl, at least 2 ms (one late timer tick) and at most 250 ms (more would waste a long lease).
   */
  #signalInMs(record: LeaseRecord): number {
    return record.remainingMs() - Math.max(2, Math.min(record.validTtlMs * 0.02, 250))
  }

  #renewable(record: LeaseRecord): boolean {
    return record.renew && record.extending === undefined
  }

  #wakeFor(record: LeaseRecord): void {
    const nowMs = this.#clock.monotonicMs()
    this.#wakeIn(nowMs, this.#nextMs(record))
  }

  /**
   * `nowMs` was read before the delay was computed. If the process is stopped in between, or before the timer is set, a delay
   * that counts from the end of that pause would make the signal too late by the length of the pause.
   */
  #wakeIn(nowMs: number, delayMs: number): void {
    // Timers take whole milliseconds, at least one. A timer that fires a fraction too early would find nothing due and be set
    // again at once. A timer that is due within the next millisecond must not be replaced by a later one.
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
    const leases = this.#held.size
    // After a stall the deadlines come first: the holder of a lease that is over must learn that before anything else happens.
    for (const record of this.#held) {
      if (this.#signalInMs(record) <= 0) this.end(record, record.why(), record.doubt)
    }
    if (lateMs > STALL_MS && leases > 0) this.#tell?.({ type: 'stalled', lateMs, leases })
    this.#renewDue()
    const nowMs = this.#clock.monotonicMs()
    let nextMs = Infinity
    for (const record of this.#held) nextMs = Math.min(nextMs, this.#nextMs(record))
    if (nextMs < Infinity) this.#wakeIn(nowMs, nextMs)
  }

  #renewDue(): void {
    const early: LeaseRecord[] = []
    let anyDue = false
    for (const record of this.#held) {
      if (!this.#renewable(record)) continue
      const leftMs = record.renewAfterMs - record.elapsedMs()
      if (leftMs <= record.ttlMs * EARLY_PART) early.push(record)
      if (leftMs <= 0) anyDue = true
    }
    if (!anyDue) return
    for (const record of early) this.#handles.watch(record)
    for (let from = 0; from < early.length; from += BATCH) {
      // Never rejects: #extendAll turns every failure into a doubt or a loss of the records.
      void this.#extendAll(early.slice(from, from + BATCH))
    }
  }

  async #extendAll(
    records: readonly LeaseRecord[],
    newTtlMs?: number,
    loss: LossReason = 'stolen',
  ): Promise<readonly Extension[]> {
    const since = instant(this.#clock)
    const refs = records.map((record) => {
      const { resources, owner, token, ttlMs, shared } = record
      const keepMs = Math.ceil(record.keepLeftMs())
      return { resources, owner, token, ttlMs: newTtlMs ?? ttlMs, shared, ...(keepMs > 0 ? { keepMs } : {}) }
    })
    const call = this.#ask(refs)
    for (const record of records) {
      if (newTtlMs !== undefined) record.mayEndAt(since, newTtlMs)
      record.extending = call
      if (newTtlMs !== undefined) this.#wakeFor(record)
    }
    const answers = await call
    for (const [index, record] of records.entries()) {
      record.extending = undefined
      const answer = answers[index] ?? NO_ANSWER
      if (answer.kind === 'lost') this.end(record, loss)
      else this.#settle(record, refs[index]!.ttlMs, since, answer)
    }
    return answers
  }

  /** An engine that breaks its contract and throws must not stop the renewal of all other leases. */
  async #ask(refs: readonly LeaseRef[]): Promise<readonly Extension[]> {
    try {
      return await this.#engine.extend(refs)
    } catch (cause) {
      return refs.map(() => doubtful(cause))
    }
  }

  #settle(
    record: LeaseRecord,
    ttlMs: number,
    since: ReturnType<typeof instant>,
    answer: Exclude<Extension, { kind: 'lost' }>,
  ): void {
    if (record.over !== undefined) return
    const { resources, owner, token } = record
    if (answer.kind === 'held') {
      const slackMs = record.remainingMs()
      // The user may have seen `held` turn false already; a lease that is over stays over.
      if (slackMs <= 0) {
        this.end(record, record.why(), record.doubt)
        return
      }
      const ofMs = record.ttlMs
      record.renewed(since, ttlMs)
      this.#tell?.({ type: 'renewed', resources, owner, token, slackMs, ttlMs: ofMs })
    } else {
      record.doubted(answer.cause, ttlMs)
      // There is time for several tries before the validity ends: a sixth of the ttl apart, but at most a second.
      const retryMs = Math.min(record.ttlMs / 6, record.remainingMs() / 3, 1000)
      record.renewAfterMs = record.elapsedMs() + retryMs
      const { cause } = answer
      this.#tell?.({ type: 'doubtful', resources, owner, token, cause, remainingMs: record.remainingMs() })
      if (record.renew && record.onDoubt === 'stop') {
        // The servers may still have it, and keep others out for no use.
        if (this.end(record, 'doubtful', cause)) this.#giveBack(record)
        return
      }
    }
    this.#wakeFor(record)
  }
}

const NO_ANSWER: Extension = { kind: 'unknown', cause: new Error('the engine gave no answer') }

function failed(what: string, { resources }: LeaseRecord, cause: Error): EngineError {
  const transient = !(cause instanceof EngineError) || cause.transient
  return new EngineError(`could not ${what}: ${cause.message}`, resources, { cause, transient })
}

function doubtful(cause: unknown): Extension {
  return { kind: 'unknown', cause: asError(cause) }
}
