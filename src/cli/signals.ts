import { constants } from 'node:os'

/** Passed on to the command. Only WINCH would end nobody who does not know it. */
const FORWARDED: readonly NodeJS.Signals[] = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
  'SIGQUIT',
  'SIGUSR1',
  'SIGUSR2',
  'SIGWINCH',
]

/** Why a wait was given up. */
export class Interrupted extends Error {
  readonly signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`)
    this.signal = signal
  }

  get exitCode(): number {
    return signalCode(this.signal)
  }
}

/** 128 + n, as shells show the death by a signal. */
export function signalCode(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}

/** Signals that we receive go to the part that is in charge at the time; before there is one, they end the wait. */
export class Signals {
  readonly #waiting = new AbortController()
  #target: ((signal: NodeJS.Signals) => void) | undefined
  /** The command has the terminal: what is typed there reaches it and not us. */
  commandHasTerminal = false

  constructor() {
    for (const name of FORWARDED) process.on(name, () => this.#received(name))
  }

  /** Aborts, with `Interrupted`, when a signal came while nobody was there to take it. */
  get interrupted(): AbortSignal {
    return this.#waiting.signal
  }

  /** Undefined: from now on a signal interrupts. */
  passTo(target: ((signal: NodeJS.Signals) => void) | undefined): void {
    this.#target = target
  }

  /**
   * Ctrl-C is meant for the whole job: a script that called us stops too if we die of it, and would go on if we exited with
   * 130. If only the command has got it, the others of our process group get it from us.
   */
  async dieOfInterrupt(): Promise<never> {
    process.removeAllListeners('SIGINT')
    process.kill(this.commandHasTerminal ? 0 : process.pid, 'SIGINT')
    return new Promise(() => undefined)
  }

  #received(signal: NodeJS.Signals): void {
    if (this.#target !== undefined) return this.#target(signal)
    if (signal === 'SIGWINCH') return
    // The second one is from somebody who has no patience with our tidying up.
    if (this.#waiting.signal.aborted) process.exit(signalCode(signal))
    this.#waiting.abort(new Interrupted(signal))
  }
}
