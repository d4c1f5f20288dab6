import { execFileSync } from 'node:child_process'
import { readFileSync, readlinkSync, statSync } from 'node:fs'
import { EngineError } from '../../errors.ts'

/** What a process must know about the machine that it shares with others: which boot it is and which processes live. */
export interface Machine {
  /** The id of this boot of the machine; empty where it is not known. */
  readonly boot: string
  /** Identifies this process, so that others can see whether it still lives; null where they cannot. */
  readonly self: string | null
  /** How far the machine's clock, as this process reads it, is ahead of the clock that a process outside of containers reads. */
  readonly offsetMs: number
  /** True only for a process that has certainly ended. A stopped process lives. */
  isGone(process: string): boolean
  /** True only for a process that is certainly stopped, for example by SIGSTOP or a debugger. */
  isStopped(process: string): boolean
}

/** Reads everything once: a process does not move to another machine. */
export function thisMachine(): Machine {
  if (process.platform === 'linux') return linux()
  if (process.platform === 'darwin') return darwin()
  throw new EngineError(
    `the file engine runs on Linux and macOS, not on ${process.platform}; take an engine with a server, such as redis(client)`,
    [],
    {
      transient: false,
    },
  )
}

function linux(): Machine {
  const boot = bootId()
  // Process ids mean nothing in another pid namespace, and start times are counted differently in another time namespace:
  // there, a living holder would look like a dead one. So processes are looked up in our own namespaces only.
  const namespaces = `${boot} ${linkOr('/proc/self/ns/pid')} ${linkOr('/proc/self/ns/time')}`
  // A sandbox may have a pid namespace of its own but its parent's /proc, which has other process ids.
  const isOurProc = linkOr('/proc/self') === String(process.pid)
  const started = isOurProc ? statOf(process.pid)?.started : undefined
  const self = started === undefined ? null : `${process.pid} ${started} ${namespaces}`
  const idOf = (other: string): { readonly pid: number; readonly started: string } | undefined => {
    const [pid, startedThen, ...there] = other.split(' ')
    if (other === self || !isOurProc || there.join(' ') !== namespaces) return undefined
    return { pid: Number(pid), started: startedThen! }
  }
  return {
    boot,
    self,
    offsetMs: clockOffsetMs(),
    isGone(other) {
      const id = idOf(other)
      if (id === undefined) return false
      if (!exists(id.pid)) return true
      const stat = statOf(id.pid)
      // An unreadable process is not a dead one: /proc may hide processes of other users. A zombie has ended; its parent has
      // just not read its exit status yet.
      return stat !== undefined && (stat.state === 'Z' || stat.state === 'X' || stat.started !== id.started)
    },
    isStopped(other) {
      const id = idOf(other)
      const stat = id && statOf(id.pid)
      return stat !== undefined && stat.started === id!.started && (stat.state === 'T' || stat.state === 't')
    },
  }
}

/** Without start times: a new process with the pid of a dead one is taken for it, and then only the ttl ends the lease. */
function darwin(): Machine {
  const boot = execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8' }).trim()
  return {
    boot,
    self: `${process.pid} ${boot}`,
    offsetMs: 0,
    isGone(other) {
      const [pid, there] = other.split(' ')
      return there === boot && !exists(Number(pid))
    },
    isStopped: () => false,
  }
}

const BOOT_ID = '/proc/sys/kernel/random/boot_id'

/**
 * The kernel's boot id. Some containers (systemd-nspawn) put a file with an id of their own in its place. With that, leases of
 * other containers on this machine would look like those of an earlier boot, so it counts as unknown.
 */
function bootId(): string {
  try {
    if (statSync(BOOT_ID).dev !== statSync('/proc/sys/kernel/random/uuid').dev) return ''
    return readFileSync(BOOT_ID, 'latin1').trim()
  } catch {
    return ''
  }
}

/** A time namespace shifts the monotonic clock of its processes. */
function clockOffsetMs(): number {
  try {
    const line = /^monotonic\s+(-?\d+)\s+(-?\d+)/m.exec(readFileSync('/proc/self/timens_offsets', 'latin1'))
    return line === null ? 0 : Number(line[1]) * 1000 + Number(line[2]) / 1e6
  } catch {
    // A kernel without time namespaces.
    return 0
  }
}

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // A process of another user exists, even if we may not signal it.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

function statOf(pid: number): { readonly started: string; readonly state: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name is in parentheses and may itself contain some. The state follows it; the start time comes 19 fields later.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { started: fields[19]!, state: fields[0]! }
  } catch {
    return undefined
  }
}

function linkOr(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}
