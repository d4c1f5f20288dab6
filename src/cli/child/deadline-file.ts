import {
  accessSync,
  constants,
  existsSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../clock.ts'
import { EXIT, Failure } from '../exit-codes.ts'
import { readOr } from './processes.ts'
import { sharedNow } from './shared-clock.ts'

/** From now, in milliseconds. */
export interface LeaseDeadlines {
  /** The lease is surely ours until then. */
  readonly untilMs: number
  /** When the watchdog ends the command, should ringfence not have done it. */
  readonly termMs: number
  readonly killMs: number
}

/**
 * Tells other processes until when the lease is valid: the command, which may ask at any time, and the watchdog, which
 * ends the command when nobody has moved the deadline. It states a time and not "held", so that it is right also when
 * ringfence is stopped or dead.
 *
 * One line: `CLOCK UNTIL TERM KILL UNTIL-UNIX`, milliseconds of the clock (uptime or unix), the last since 1970.
 */
export class DeadlineFile {
  readonly folder: string
  readonly path: string

  constructor() {
    const parent = runtimeFolder()
    try {
      this.folder = mkdtempSync(join(parent, 'ringfence-'))
    } catch (error) {
      throw withoutFolder(error)
    }
    this.path = join(this.folder, 'deadline')
  }

  /** Throws where none can be made: better than to find out when the lease is ours. */
  static assertPossible(): void {
    const file = new DeadlineFile()
    try {
      file.write(() => ({ untilMs: 0, termMs: 0, killMs: 0 }))
    } catch (error) {
      throw withoutFolder(error)
    } finally {
      file.remove()
    }
  }

  /** Atomically: readers see the old line or the new one. `deadlines` is called after the clock was read, so that a stop
   * of this process in between makes them too early and never too late. */
  write(deadlines: () => LeaseDeadlines): void {
    const { clock, ms } = sharedNow()
    const wallMs = systemClock.wallMs()
    const { untilMs, termMs, killMs } = deadlines()
    const times = [ms + untilMs, ms + termMs, ms + killMs, wallMs + untilMs].map((time) => Math.floor(time))
    const draft = `${this.path}.new`
    writeFileSync(draft, `${clock} ${times.join(' ')}\n`, { mode: 0o644 })
    renameSync(draft, this.path)
  }

  /** The watchdog has found the deadline passed and ended the command. */
  get wasEnforced(): boolean {
    return existsSync(`${this.path}.ended`)
  }

  /** The shell that was to become the command could not execute it. */
  get wasNotExecuted(): boolean {
    return existsSync(`${this.path}.not-executed`)
  }

  remove(): void {
    // Not `rmSync`: it takes a few milliseconds to load.
    try {
      for (const file of readdirSync(this.folder)) unlinkSync(join(this.folder, file))
      rmdirSync(this.folder)
    } catch (error) {
      // Somebody tidied up the temporary files before us.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
  }
}

/** Milliseconds of validity left by a deadline file; 0 when it is over, or the file is gone: then ringfence is too. */
export function remainingByFile(path: string): number {
  const fields = readOr(path)?.trim().split(' ') ?? []
  const [until, , , untilUnix] = fields.slice(1).map(Number)
  const now = sharedNow()
  if (until === undefined || untilUnix === undefined || fields[0] !== now.clock) return 0
  // The earlier of the two, as the lease itself counts: the wall clock may be set back, the other one may be another's.
  const leftMs = Math.min(until - now.ms, untilUnix - systemClock.wallMs())
  return leftMs > 0 ? leftMs : 0
}

/** Private to the user and emptied at the next start, where there is such a folder. It may be someone else's after `su`. */
function runtimeFolder(): string {
  const folder = process.env['XDG_RUNTIME_DIR']
  if (folder === undefined) return tmpdir()
  try {
    accessSync(folder, constants.W_OK | constants.X_OK)
    return folder
  } catch {
    return tmpdir()
  }
}

function withoutFolder(error: unknown): Failure {
  return new Failure(
    EXIT.failed,
    `the file with the deadline of the lease cannot be written: ${(error as Error).message}`,
    ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '')
      ? 'free some space there, or set TMPDIR to a folder on another disk'
      : 'set TMPDIR to a folder that this user may write to',
    error,
  )
}
