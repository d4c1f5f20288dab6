import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  unlinkSync,
  write,
} from 'node:fs'
import { promisify } from 'node:util'
import { settled, type Clock, type Timer } from '../../clock.ts'
import { messageOf } from '../../errors.ts'
import type { HistoryType } from '../protocol.ts'
import { STAGES } from './history.ts'

/** An entry of the history in the file: a line of JSON. */
export interface JournalEntry {
  /** Milliseconds since 1970. */
  readonly at: number
  readonly engine: string
  readonly resource: string
  readonly type: HistoryType
  readonly owner: string
  readonly token: string
  readonly exact: boolean
}

export interface JournalSettings {
  readonly file: string
  /** Of both files together. */
  readonly maxBytes: number
  readonly maxAgeMs: number
}

const writeAll = promisify(write)
/** While the disk is full, this many entries are kept for later. */
const MOST_WAITING = 10_000
const RETRY_MS = 10_000
const LINES_A_TURN = 2000
const CHECK_MS = 3_600_000

/**
 * The history in a file, which outlives a restart. Every entry is a line that is appended by one write, so that several
 * dashboards may share a file, and a line that was torn by a crash or a full disk is one line that is not read. When the file
 * has half of its size, or is too old, it becomes FILE.1, and the FILE.1 of before is gone.
 */
export class Journal {
  readonly #settings: JournalSettings
  readonly #clock: Clock
  #descriptor: number
  #waiting: string[] = []
  #writing: Promise<void> | undefined
  #retry: Timer | undefined
  #check: Timer | undefined
  /** The end of the file may be in the middle of a line. */
  #isTorn = true
  #oldestMs: number
  #failures = 0
  /** Entries that found no place while the file could not be written. */
  #dropped = 0
  /** Why the last write failed; null: it worked. */
  trouble: string | null = null
  #isClosed = false

  /** Throws if the file cannot be used: then nothing of it was changed. */
  constructor(settings: JournalSettings, clock: Clock) {
    this.#settings = settings
    this.#clock = clock
    this.#descriptor = openOurs(settings.file)
    this.#oldestMs = this.read()[0]?.at ?? clock.wallMs()
    this.#upkeep()
  }

  /** How many writes failed, and how many entries were lost by it. */
  get losses(): { readonly failures: number; readonly dropped: number } {
    return { failures: this.#failures, dropped: this.#dropped }
  }

  add(entry: JournalEntry): void {
    if (this.#isClosed) return
    this.#waiting.push(`${JSON.stringify(entry)}\n`)
    if (this.#waiting.length > MOST_WAITING) {
      this.#waiting.shift()
      this.#dropped++
    }
    // After a failure it is tried again by the timer, and not for every entry.
    if (this.#retry === undefined) this.#start()
  }

  /** Everything that is not too old, the oldest first. What is no entry is left out. */
  read(): JournalEntry[] {
    return this.#lines().flatMap((line) => this.#entry(line))
  }

  /** The same without keeping everybody else in this process waiting: lines are parsed a part at a time. */
  async readInTurns(): Promise<JournalEntry[]> {
    await this.#writing
    const lines = this.#lines()
    const entries: JournalEntry[] = []
    for (let from = 0; from < lines.length; from += LINES_A_TURN) {
      for (const line of lines.slice(from, from + LINES_A_TURN)) entries.push(...this.#entry(line))
      await settled()
    }
    return entries
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#check?.cancel()
    this.#retry?.cancel()
    await this.#writing
    if (this.#waiting.length > 0) await this.#write()
    this.#retry?.cancel()
    closeSync(this.#descriptor)
  }

  #lines(): string[] {
    const { file, maxBytes } = this.#settings
    const kept = [`${file}.1`, file].flatMap((path) => tailOf(path, maxBytes).split('\n'))
    // What found no place in the file yet is known here.
    return [...kept, ...this.#waiting]
  }

  /** None if it is none, or too old. */
  #entry(line: string): JournalEntry[] {
    const entry = entryOf(line)
    return entry === undefined || entry.at < this.#clock.wallMs() - this.#settings.maxAgeMs ? [] : [entry]
  }

  async #write(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        this.#reopenIfMoved()
        const lines = this.#waiting
        this.#waiting = []
        await this.#append(lines)
        if (fstatSync(this.#descriptor).size > this.#settings.maxBytes / 2) this.#rotate()
      }
      this.trouble = null
    } catch (error) {
      this.#failures++
      this.trouble = messageOf(error)
      if (!this.#isClosed) this.#retry = this.#clock.timer(() => this.#again(), RETRY_MS, true)
    }
  }

  #again(): void {
    this.#retry = undefined
    this.#start()
  }

  #start(): void {
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined
      // Added in the moment between the last write and this.
      if (this.#waiting.length > 0 && this.#retry === undefined && !this.#isClosed) this.#start()
    })
  }

  async #append(lines: readonly string[]): Promise<void> {
    const bytes = Buffer.from((this.#isTorn ? '\n' : '') + lines.join(''))
    try {
      const { bytesWritten } = await writeAll(this.#descriptor, bytes)
      if (bytesWritten < bytes.length) throw new Error(`only ${bytesWritten} of ${bytes.length} bytes were written`)
      this.#isTorn = false
    } catch (error) {
      // Lines that did get through are written twice, and shown once.
      this.#isTorn = true
      this.#waiting = [...lines, ...this.#waiting].slice(-MOST_WAITING)
      throw error
    }
  }

  /** Another dashboard on the same file, or a tool that rotates logs, may have moved it away. */
  #reopenIfMoved(): void {
    if (isSame(statOrNothing(this.#settings.file), fstatSync(this.#descriptor))) return
    this.#reopen()
  }

  #reopen(): void {
    const next = openOurs(this.#settings.file)
    closeSync(this.#descriptor)
    this.#descriptor = next
    this.#isTorn = true
    this.#oldestMs = this.#clock.wallMs()
  }

  #rotate(): void {
    const { file } = this.#settings
    // Looked at again right before: if the other dashboard was first, there is nothing left to do.
    const [there, ours] = [statOrNothing(file), fstatSync(this.#descriptor)]
    if (isSame(there, ours)) {
      fsyncSync(this.#descriptor)
      renameSync(file, `${file}.1`)
    }
    this.#reopen()
  }

  /** What is too old is removed, also where nothing happens any more. */
  #upkeep(): void {
    const { file, maxAgeMs } = this.#settings
    const now = this.#clock.wallMs()
    try {
      const before = statOrNothing(`${file}.1`)
      if (before !== undefined && now - before.mtimeMs > maxAgeMs) unlinkSync(`${file}.1`)
      if (now - this.#oldestMs > maxAgeMs) this.#rotate()
    } catch (error) {
      this.#failures++
      this.trouble = messageOf(error)
    }
    this.#check = this.#clock.timer(() => this.#upkeep(), CHECK_MS, true)
  }
}

/** A file of somebody else, or one that others may write to, is not ours to write our history to, nor to believe. */
function openOurs(file: string): number {
  const { O_APPEND, O_CREAT, O_RDWR, O_NOFOLLOW, O_NONBLOCK } = constants
  let descriptor: number
  try {
    // Where a system has no such flag, it is undefined, and counts as 0.
    descriptor = openSync(file, O_APPEND | O_CREAT | O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0o600)
  } catch (error) {
    throw new TypeError(`history: ${file} cannot be opened: ${messageOf(error)}`, { cause: error })
  }
  const { uid, mode } = fstatSync(descriptor)
  const self = process.geteuid?.()
  const wrong = !fstatSync(descriptor).isFile()
    ? 'is no regular file'
    : self !== undefined && uid !== self
      ? `belongs to the user with the id ${uid}, and this process is ${self}`
      : self !== undefined && (mode & 0o022) !== 0
        ? 'can be written to by others (chmod go-w)'
        : undefined
  if (wrong === undefined) return descriptor
  closeSync(descriptor)
  throw new TypeError(`history: expected a file of this user alone, but ${file} ${wrong}`)
}

/** The last bytes of a file; '' if there is none, or if it is somebody else's. */
function tailOf(path: string, mostBytes: number): string {
  let descriptor: number
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  } catch {
    return ''
  }
  try {
    const { size, uid } = fstatSync(descriptor)
    if (uid !== (process.geteuid?.() ?? uid)) return ''
    const bytes = Buffer.alloc(Math.min(size, mostBytes))
    const count = readSync(descriptor, bytes, 0, bytes.length, Math.max(0, size - bytes.length))
    return bytes.toString('utf8', 0, count)
  } finally {
    closeSync(descriptor)
  }
}

/** Undefined for a line that is torn, or that we have not written. */
function entryOf(line: string): JournalEntry | undefined {
  if (line === '') return undefined
  let entry: Partial<Record<keyof JournalEntry, unknown>> | null
  try {
    entry = JSON.parse(line) as typeof entry
  } catch {
    return undefined
  }
  const { at, engine, resource, type, owner, token, exact } = entry ?? {}
  const isOne =
    typeof at === 'number' &&
    typeof engine === 'string' &&
    typeof resource === 'string' &&
    typeof owner === 'string' &&
    typeof exact === 'boolean' &&
    typeof token === 'string' &&
    /^\d{1,40}$/.test(token) &&
    typeof type === 'string' &&
    Object.hasOwn(STAGES, type)
  return isOne ? { at, engine, resource, type: type as HistoryType, owner, token, exact } : undefined
}

interface FileState {
  readonly ino: number
  readonly dev: number
  readonly mtimeMs: number
}

function statOrNothing(path: string): FileState | undefined {
  return statSync(path, { throwIfNoEntry: false })
}

function isSame(one: FileState | undefined, other: FileState): boolean {
  return one !== undefined && one.ino === other.ino && one.dev === other.dev
}
