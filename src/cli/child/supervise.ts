import { systemClock, type Timer } from '../../clock.ts'
import { span } from '../../duration.ts'
import { LeaseLostError, type Lease, type LossReason } from '../../index.ts'
import { DeadlineFile, type LeaseDeadlines } from './deadline-file.ts'
import { EXIT, Failure } from '../exit-codes.ts'
import { launch, type Program } from './launch.ts'
import { Family, signalGroup } from './processes.ts'
import { Watchdog } from './watchdog.ts'

export interface Terms {
  /** The longest that the lease lasts without a renewal: the ttl, or the time for which it may be held at all. */
  readonly holdMs: number
  /** Between TERM and KILL. */
  readonly graceMs: number
  /** Give the command the terminal. */
  readonly terminal: boolean
  readonly warn: (message: string) => void
}

export type CommandEnding =
  | { readonly kind: 'ended'; readonly code: number | null; readonly signal: NodeJS.Signals | null }
  | { readonly kind: 'lost'; readonly reason: LossReason }

/**
 * Everything is dead this long before validity ends: it takes a moment to wake up on a busy machine, to send the signal
 * and to die of it: a tenth of a second was not enough with five busy processes a core. 5 % of the ttl, at least 400 ms; of a
 * long one, more than a second would be a waste.
 */
export function marginMs(holdMs: number): number {
  return Math.min(Math.max(holdMs * 0.05, 400), 1000)
}

/** By which a command is asked to end. */
const ENDING: ReadonlySet<NodeJS.Signals> = new Set(['SIGINT', 'SIGTERM', 'SIGHUP'])
/** Of a lease whose time is over. */
const BY_TIME: ReadonlySet<LossReason> = new Set(['expired', 'unreachable', 'max-hold'])
/** Timers stand still while a machine sleeps. After it wakes, the lease is looked at within this time. */
const LONGEST_NAP_MS = 1000
/** The watchdog sends its TERM this much later than ours is due, so that a command is not asked twice; KILL may come twice. */
const WATCHDOG_LATER_MS = 100
/** Between two looks whether all that was killed is gone. */
const LOOK_MS = 5
/** What was killed is gone within milliseconds, unless it is another user's (sudo) or hangs in the kernel. */
const GIVE_UP_MS = 2000

/** One command under one lease, from its start until nothing of it is left. */
export class Supervision {
  readonly #lease: Lease
  readonly #terms: Terms
  readonly #file = new DeadlineFile()
  #family: Family | undefined
  #timer: Timer | undefined
  #lost: LossReason | undefined
  #unwatched: Error | undefined
  #isDoubted = false

  constructor(lease: Lease, terms: Terms) {
    this.#lease = lease
    this.#terms = terms
  }

  /** For the command's environment. */
  get deadlineFile(): string {
    return this.#file.path
  }

  /** The lease is ours for longer. */
  renewed(): void {
    if (this.#lost === undefined) this.#tell(() => this.#deadlines())
  }

  /**
   * A renewal has failed, and the command is not to go on in doubt. The lease is still ours: it is renewed further, and kept
   * until nothing of the command is left.
   */
  doubted(): void {
    this.#isDoubted = true
    if (this.#family === undefined || this.#lost !== undefined) return
    const killInMs = Math.min(this.#terms.graceMs, this.#lease.remaining() - marginMs(this.#terms.holdMs))
    this.#lose('doubtful', killInMs)
    this.#timer?.cancel()
    this.#timer = systemClock.timer(() => this.#kill(), Math.max(killInMs, 0))
  }

  /** To the command's process group, as a terminal does it. */
  forward(signal: NodeJS.Signals): void {
    if (this.#family === undefined) return
    signalGroup(this.#family.group, signal)
    // A command that is stopped would take it when it is continued, and hold the lease until then.
    if (ENDING.has(signal)) signalGroup(this.#family.group, 'SIGCONT')
  }

  /** `starts` is asked when all is ready: the command starts at this very moment if the answer is true. */
  async run(program: Program, starts: () => boolean): Promise<CommandEnding> {
    let watchdog: Watchdog | undefined
    try {
      this.#file.write(() => this.#deadlines())
      const launched = await launch(program, this.#terms.terminal)
      const { pid: group, job } = launched
      const family = new Family(group, program.owner)
      this.#family = family
      watchdog = new Watchdog({ deadlineFile: this.#file.path, group, job, owner: program.owner }, (cause) => {
        this.#unwatched = cause
        family.signal('SIGKILL')
      })
      this.#lease.signal.addEventListener('abort', this.#onLost)
      if (this.#lease.signal.aborted) this.#onLost()
      else if (this.#isDoubted) this.doubted()
      else this.#look()
      if (starts()) launched.go()
      else signalGroup(group, 'SIGKILL')
      const ending = await launched.ended
      if (this.#file.wasNotExecuted) throw notExecuted(program, ending.code)
      // We may have been stopped for long enough that the watchdog ended it, and have even renewed the lease since.
      if (this.#lost === undefined && this.#file.wasEnforced) this.#kill()
      await this.#endRest(family)
      if (this.#unwatched !== undefined) throw unwatched(this.#unwatched)
      return this.#lost === undefined ? { kind: 'ended', ...ending } : { kind: 'lost', reason: this.#lost }
    } finally {
      this.#timer?.cancel()
      this.#lease.signal.removeEventListener('abort', this.#onLost)
      watchdog?.stop()
      this.#file.remove()
    }
  }

  /** What is due by the clock, computed now, so that it is right also after a stop or a sleep of the machine. */
  #look(): void {
    this.#timer?.cancel()
    const killInMs = this.#lease.remaining() - marginMs(this.#terms.holdMs)
    if (killInMs <= 0) return this.#kill()
    const termInMs = killInMs - this.#terms.graceMs
    if (termInMs <= 0) this.#lose(this.#lease.why(), killInMs)
    const nextMs = this.#lost === undefined ? termInMs : killInMs
    this.#timer = systemClock.timer(() => this.#look(), Math.min(Math.ceil(nextMs), LONGEST_NAP_MS))
  }

  readonly #onLost = (): void => {
    this.#timer?.cancel()
    const { reason } = this.#lease.signal
    const why = reason instanceof LeaseLostError ? reason.reason : this.#lease.why()
    // By time it comes just before the end: whatever we should have done by then, we are late.
    if (this.#lost !== undefined || BY_TIME.has(why)) return this.#kill()
    // Taken away before its time. There is no end to be in time for; the grace begins now.
    this.#lose(why, this.#terms.graceMs)
    this.#timer = systemClock.timer(() => this.#kill(), this.#terms.graceMs)
  }

  #lose(reason: LossReason, killInMs: number): void {
    if (this.#lost !== undefined) return
    this.#lost = reason
    // The watchdog need not ask as well; it still kills in time if we are stopped from here on.
    this.#tell(() => ({ untilMs: this.#lease.remaining(), termMs: killInMs, killMs: killInMs }))
    if (!this.#file.wasEnforced) this.#family?.signal('SIGTERM')
    this.#terms.warn(`${this.#lossWords(reason)}; stopping the command`)
  }

  #kill(): void {
    this.#timer?.cancel()
    this.#family?.signal('SIGKILL')
    if (this.#lost !== undefined) return
    this.#lost = this.#lease.why()
    this.#terms.warn(`${this.#lossWords(this.#lost)}; killed the command`)
  }

  #lossWords(reason: LossReason): string {
    if (reason === 'stolen')
      return 'the engine says that the lease is no longer ours: somebody took it, or servers forgot it'
    if (reason === 'doubtful') return 'the lease could not be renewed, and --on-doubt says stop'
    if (reason === 'expired') return 'the time of the lease is up'
    if (reason === 'max-hold') return 'the lease was held for as long as --max-hold allows'
    if (reason !== 'unreachable') return reason
    const leftMs = this.#lease.remaining()
    return `the lease cannot be renewed and ${leftMs > 0 ? `ends in ${span(leftMs)}` : 'is over'}`
  }

  #deadlines(): LeaseDeadlines {
    const untilMs = this.#lease.remaining()
    const killMs = untilMs - marginMs(this.#terms.holdMs)
    return { untilMs, killMs, termMs: killMs - this.#terms.graceMs + WATCHDOG_LATER_MS }
  }

  #tell(deadlines: () => LeaseDeadlines): void {
    try {
      this.#file.write(deadlines)
    } catch (error) {
      // The old deadline stands, and the watchdog goes by it: too early, never too late.
      this.#terms.warn(`the deadline file cannot be written: ${(error as Error).message}`)
    }
  }

  /** What the command has left behind works under the lease too: it ends before the lease does. */
  async #endRest(family: Family): Promise<void> {
    const { graceMs, warn } = this.#terms
    if (this.#lost === undefined) {
      if (!family.signalRest('SIGTERM')) return
      warn('the command left processes behind; ending them before the lease is released')
    }
    const began = systemClock.monotonicMs()
    const isLeft = (): boolean => (this.#lost === undefined ? family.signalRest(0) : family.isAlive())
    while (isLeft()) {
      const tookMs = systemClock.monotonicMs() - began
      if (tookMs > graceMs + GIVE_UP_MS) return warn('some of its processes cannot be ended: are they of another user?')
      if (tookMs > graceMs && this.#lost === undefined) family.signalRest('SIGKILL')
      else if (tookMs > graceMs) family.signal('SIGKILL')
      await new Promise<void>((resolve) => void systemClock.timer(resolve, LOOK_MS))
    }
  }
}

/** The shell has said why. It exits with 127 if the command was not there any more, and with 126 otherwise. */
function notExecuted({ argv }: Program, code: number | null): Failure {
  const exitCode = code === EXIT.notFound ? EXIT.notFound : EXIT.notExecutable
  return new Failure(exitCode, `${argv[0]}: could not be executed, so nothing was done and the lease is given back`)
}

function unwatched(cause: Error): Failure {
  const message = `the watchdog of the command cannot run (${cause.message}), so the command was killed`
  return new Failure(EXIT.failed, message, undefined, cause)
}
