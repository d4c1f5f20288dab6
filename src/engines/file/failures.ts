import { accessSync, constants, statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { EngineError } from '../../errors.ts'

/** SQLite's own result codes, https://sqlite.org/rescode.html; the lowest byte of the extended ones. */
const BUSY = 5
const READONLY = 8
const IOERR = 10
const CORRUPT = 11
const FULL = 13
const CANTOPEN = 14
const NOTADB = 26

/** Less than the shared memory of an open file takes. */
const LITTLE_BYTES = 32_768

/** Someone else writes at this moment: to be tried again soon. */
export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === BUSY
}

export function isDamage(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === CORRUPT || code === NOTADB
}

/** What went wrong with the file, and what to do about it. */
export function explained(error: unknown, path: string, resources: readonly string[] = []): EngineError {
  if (error instanceof EngineError) return error
  const { text, transient } = explanation(error, path)
  return new EngineError(`${path} ${text}`, resources, { cause: error, transient })
}

export function unusable(path: string, text: string, transient = false): EngineError {
  return new EngineError(`${path} ${text}`, [], { transient })
}

function explanation(error: unknown, path: string): { readonly text: string; readonly transient: boolean } {
  const message = error instanceof Error ? error.message : String(error)
  switch (sqliteCode(error) ?? (error as Partial<NodeJS.ErrnoException> | undefined)?.code ?? 'none') {
    case BUSY:
      return { text: 'was busy: others wrote to it all the time, or one was stopped while it did', transient: true }
    case FULL:
    case 'ENOSPC':
    case 'EDQUOT':
      return { text: `can't be written: the disk is full (${message})`, transient: true }
    case CORRUPT:
    case NOTADB:
      return {
        text: `is not, or no longer, a database (${message}). When no process uses it, move it and its -wal and -shm away`,
        transient: false,
      }
    case READONLY:
    case CANTOPEN:
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return { text: `can't be opened for writing: ${obstacle(path) ?? message}`, transient: false }
    case 'ENOTDIR':
    case 'EEXIST':
    case 'EISDIR':
    case 'ENAMETOOLONG':
    case 'ELOOP':
      return { text: `can't be the path of a file: ${message}`, transient: false }
    case IOERR:
      // Also what SQLite says when there is no room for the memory that the processes share.
      if (isFull(path)) return { text: `can't be written: the disk is full (${message})`, transient: true }
      return { text: `can't be read or written: ${message}`, transient: true }
    default:
      return { text: `can't be used: ${message}`, transient: false }
  }
}

/** SQLite says only that it can't; the file system says why. */
function obstacle(path: string): string | undefined {
  // SQLite needs two more files beside it, and the folder itself may have to be made.
  for (let place = path; ; place = dirname(place)) {
    try {
      accessSync(place, constants.W_OK)
      if (place !== path) return undefined
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' && dirname(place) !== place) continue
      return `${(error as Error).message}. Give this user the right to write there, or choose another path`
    }
  }
}

function isFull(path: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(dirname(path))
    return bavail * bsize < LITTLE_BYTES
  } catch {
    return false
  }
}

function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined
  // node:sqlite has `errcode`, libsql `rawCode`; libsql tells a failure to open in words alone.
  const code =
    Reflect.get(error, 'errcode') ??
    Reflect.get(error, 'rawCode') ??
    /^ConnectionFailed.*: (\d+)"/.exec(error.message)?.[1]
  return code === undefined ? undefined : Number(code) & 0xff
}
