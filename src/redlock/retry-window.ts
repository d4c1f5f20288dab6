import type { Clock, Timer } from '../clock.ts'
import type { LockEvent } from '../events.ts'

/** What a call is aborted with when its retries would be over by now. */
export const WINDOW_OVER = new Error('The retry window is over.')

/**
 * Ends the wait of a call after the time of its retries, but no attempt that is under way: the server may be granting it, and would
 * refuse the last attempt because of it. Its answer is the last thing that is waited for.
 */
export class RetryWindow {
  readonly #abort = new AbortController()
  readonly #timer: Timer
  #isOver = false
  #isAsking = false
  #isInLine = false
  #failure: Error | undefined

  constructor(clock: Clock, ms: number) {
    this.#timer = clock.timer(() => this.#timeUp(), ms)
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  observe(event: LockEvent): void {
    // A place in the line is left when the time is up. It is asked for by an attempt, too.
    if (event.type === 'attempt') this.#isAsking = !this.#isInLine
    else if (event.type === 'waiting') this.#goesOn(event.atMostMs === Infinity)
    else if (event.type === 'refused') this.#answered(undefined)
    else if (event.type === 'failed') this.#answered(event.cause)
  }

  close(): void {
    this.#timer.cancel()
  }

  #answered(failure: Error | undefined): void {
    this.#failure = failure
    this.#goesOn(false)
  }

  #goesOn(inLine: boolean): void {
    this.#isAsking = false
    this.#isInLine = inLine
    this.#end()
  }

  #timeUp(): void {
    this.#isOver = true
    this.#end()
  }

  #end(): void {
    if (this.#isOver && !this.#isAsking) this.#abort.abort(this.#failure ?? WINDOW_OVER)
  }
}
