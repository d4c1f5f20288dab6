import type { Clock } from '../../clock.ts'
import type { Engine, LeaseInfo } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Board } from './board.ts'

export interface ScannerPlan {
  readonly clock: Clock
  /** Between two looks while someone watches, and while nobody does. */
  readonly everyMs: number
  readonly idleMs: number
  /** Something has changed on the board. */
  changed(): void
  /** A look is over; undefined: it was complete. */
  looked(failure: unknown): void
}

/** Rows between two turns for everybody else in this process. */
const ROWS_A_TURN = 250
/** Changes are sent after at most this many of them, or this much time, also in the middle of a long look. */
const NEWS_A_FLUSH = 1000
const FLUSH_MS = 250
/** An engine that is silent for this long hangs, whatever deadlines it has of its own. */
const SILENCE_MS = 15_000
/** The engine is looked through for at most a fifth of the time. */
const REST_FACTOR = 4
/** At most this long between two looks while someone reads the figures. */
const ASKED_MS = 10_000
const MOST_BACKOFF_MS = 30_000

/** Looks through all leases again and again: one look for all pages. */
export class Scanner {
  readonly #engine: Engine
  readonly #board: Board
  readonly #plan: ScannerPlan
  #watched = false
  #isAsked = false
  #failures = 0
  #endedMs: number
  #restMs = 0
  /** Ends the pause, if there is one. */
  #wake = (): void => undefined
  #isClosed = false

  constructor(engine: Engine, board: Board, plan: ScannerPlan) {
    this.#engine = engine
    this.#board = board
    this.#plan = plan
    this.#endedMs = plan.clock.monotonicMs()
  }

  /** Never rejects; ends after `close`. */
  async run(): Promise<void> {
    if (this.#plan.idleMs === Infinity) await this.#sleep()
    while (!this.#isClosed) {
      const { clock } = this.#plan
      const startedMs = clock.monotonicMs()
      let failure: unknown
      try {
        await this.#look()
        this.#failures = 0
      } catch (error) {
        failure = error ?? new Error('the look failed')
        this.#failures++
      }
      if (this.#isClosed) return
      this.#endedMs = clock.monotonicMs()
      const backOffMs = Math.min(MOST_BACKOFF_MS, this.#plan.everyMs * 2 ** Math.min(this.#failures, 10))
      this.#restMs = Math.max(REST_FACTOR * (this.#endedMs - startedMs), this.#failures === 0 ? 0 : backOffMs)
      this.#plan.changed()
      this.#plan.looked(failure)
      await this.#sleep()
    }
  }

  /** Someone watches from now on, or nobody does any more. */
  watch(isWatched: boolean): void {
    if (this.#watched === isWatched) return
    this.#watched = isWatched
    this.#wake()
  }

  /** Nobody has it open, but its figures are read: it is looked through now and then, whatever it does when idle. */
  ask(isAsked: boolean): void {
    if (this.#isAsked === isAsked) return
    this.#isAsked = isAsked
    this.#wake()
  }

  close(): void {
    this.#isClosed = true
    this.#wake()
  }

  /** Until the next look is due; a page that begins to watch meanwhile makes it due earlier. */
  async #sleep(): Promise<void> {
    for (;;) {
      const { clock, everyMs, idleMs } = this.#plan
      const unwatchedMs = this.#isAsked ? Math.min(idleMs, ASKED_MS) : idleMs
      const dueMs = this.#endedMs + Math.max(this.#watched ? everyMs : unwatchedMs, this.#restMs)
      const leftMs = dueMs - clock.monotonicMs()
      if (this.#isClosed || leftMs <= 0) return
      await new Promise<void>((resolve) => {
        const timer = leftMs === Infinity ? undefined : clock.timer(resolve, leftMs, true)
        this.#wake = () => {
          timer?.cancel()
          resolve()
        }
      })
    }
  }

  async #look(): Promise<void> {
    this.#board.begin()
    const { clock } = this.#plan
    let isGivenUp = false
    let rows = 0
    let seen = 0
    let flushedMs = clock.monotonicMs()
    const read = async (): Promise<void> => {
      for await (const lease of this.#engine.inspect()) {
        if (isGivenUp || this.#isClosed) return
        this.#board.see(lease)
        if (++rows % ROWS_A_TURN !== 0) continue
        await turn(clock)
        if (isGivenUp || this.#isClosed) return
        const now = clock.monotonicMs()
        if (this.#board.news < NEWS_A_FLUSH && now - flushedMs < FLUSH_MS) continue
        flushedMs = now
        this.#plan.changed()
      }
    }
    try {
      await notSilent(clock, read(), () => {
        const before = seen
        seen = rows
        return rows > before
      })
    } finally {
      isGivenUp = true
    }
    if (!this.#isClosed) this.#board.finish()
  }
}

/** The leases of one resource. */
export async function inspectOne(engine: Engine, clock: Clock, resource: string): Promise<readonly LeaseInfo[]> {
  const read = async (): Promise<readonly LeaseInfo[]> => {
    const leases: LeaseInfo[] = []
    for await (const lease of engine.inspect(resource))
      if (lease.resource === resource && lease.offered !== true) leases.push(lease)
    return leases
  }
  return notSilent(clock, read(), () => false)
}

/** Rejects when the work is not done and nothing has moved on for too long. */
function notSilent<T>(clock: Clock, work: Promise<T>, movedOn: () => boolean): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer = clock.timer(look, SILENCE_MS, true)
    function look(): void {
      if (movedOn()) timer = clock.timer(look, SILENCE_MS, true)
      else reject(new EngineError(`the engine has not answered for ${SILENCE_MS} ms`, []))
    }
    work.then(resolve, reject).finally(() => timer.cancel())
  })
}

/** Lets everything else that is due run first. */
function turn(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.timer(resolve, 0, true)
  })
}
