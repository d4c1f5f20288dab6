import { readdirSync, readFileSync } from 'node:fs'
import { systemClock } from '../../clock.ts'

/** False when there is nobody left in the group. */
export function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  return sent(-group, signal)
}

function sent(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    // Of another user (sudo): there, but not ours to signal.
    if ((error as NodeJS.ErrnoException).code === 'EPERM') return true
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
    throw error
  }
}

interface Stat {
  readonly state: string
  readonly group: number
  readonly session: number
  /** The process group that has the terminal; -1 without one. */
  readonly terminalGroup: number
}

/** Undefined when there is no such process, or no /proc. */
export function statOf(pid: number | 'self'): Stat | undefined {
  const text = readOr(`/proc/${pid}/stat`)
  if (text === undefined) return undefined
  // The second field is the program's name in parentheses, and may itself contain some.
  const [state = '', , group, session, , terminalGroup] = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { state, group: Number(group), session: Number(session), terminalGroup: Number(terminalGroup) }
}

/** A process that has ended, and that its parent has not collected yet (Z), does nothing any more. */
function isAlive(stat: Stat | undefined): stat is Stat {
  return stat !== undefined && stat.state !== 'Z' && stat.state !== 'X'
}

/** Nobody starts the 32,768 processes in it that would use all numbers up. */
const A_MOMENT_MS = 1000

/** All processes that a command has started, as far as that can be found out. */
export class Family {
  readonly group: number
  readonly #marker: Buffer
  /** Where the command was started; a daemon that it starts makes a session of its own. */
  readonly #session: number | undefined
  /** Those outside of the group that were found at the last look. */
  #strays: readonly number[] = []
  readonly #sinceMs = systemClock.monotonicMs()

  constructor(group: number, owner: string) {
    this.group = group
    this.#marker = Buffer.from(`RINGFENCE_OWNER=${owner}\0`)
    this.#session = statOf(group)?.session
  }

  /** To everyone, also to those who left the process group. */
  signal(signal: NodeJS.Signals): void {
    signalGroup(this.group, signal)
    // Those we know first: to look at all processes takes some milliseconds.
    const known = this.#strays.filter((pid) => this.#isStray(pid))
    for (const pid of known) sent(pid, signal)
    this.#strays = pids().filter((pid) => this.#isStray(pid))
    for (const pid of this.#strays) if (!known.includes(pid)) sent(pid, signal)
  }

  /** To what is left when the command itself is over, except for daemons. False when nothing is. */
  signalRest(signal: NodeJS.Signals | 0): boolean {
    const anyInGroup = this.#groupIsAlive()
    if (anyInGroup) signalGroup(this.group, signal)
    const rest = this.#candidates().filter((pid) => statOf(pid)?.session === this.#session && this.#isStray(pid))
    for (const pid of rest) sent(pid, signal)
    return anyInGroup || rest.length > 0
  }

  isAlive(): boolean {
    return this.#groupIsAlive() || pids().some((pid) => this.#isStray(pid))
  }

  /**
   * Numbers are given out in turn. A command that took a moment cannot have used them all up, so what it started has a
   * number between its own and the last one given out, unless they began again at the bottom meanwhile. To look at
   * everybody would cost a short command a tenth of its time.
   */
  #candidates(): number[] {
    const last = Number(readOr('/proc/loadavg')?.trim().split(' ').at(-1))
    if (!(last >= this.group) || systemClock.monotonicMs() - this.#sinceMs > A_MOMENT_MS) return pids()
    return pids().filter((pid) => pid > this.group && pid <= last)
  }

  #groupIsAlive(): boolean {
    if (!signalGroup(this.group, 0)) return false
    // A container without an init keeps its dead processes forever, and a group of them looks alive.
    const all = pids()
    const belongs = (stat: Stat | undefined): boolean => isAlive(stat) && stat.group === this.group
    return all.length === 0 || all.some((pid) => belongs(statOf(pid)))
  }

  /** One who left the process group (`timeout` does, and each job of an interactive shell). Linux alone can tell. */
  #isStray(pid: number): boolean {
    if (readBytesOr(`/proc/${pid}/environ`)?.includes(this.#marker) !== true) return false
    const stat = statOf(pid)
    return isAlive(stat) && stat.group !== this.group
  }
}

/** None where there is no /proc. Without ourselves. */
function pids(): number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0 && pid !== process.pid)
  } catch {
    return []
  }
}

/** Undefined where it cannot be read. */
export function readOr(file: string): string | undefined {
  return readBytesOr(file)?.toString('latin1')
}

/** Processes come and go, and others' environments are theirs. */
function readBytesOr(file: string): Buffer | undefined {
  try {
    return readFileSync(file)
  } catch {
    return undefined
  }
}
