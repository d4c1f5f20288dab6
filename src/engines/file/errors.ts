import { accessSync, constants, statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { EngineError, messageOf } from '../../errors.ts'
import { property } from '../shared/shape.ts'

/** SQLite's own result codes, https://sqlite.org/rescode.html; the lowest byte of the extended ones. */
const BUSY = 5
const READONLY = 8
const IOERR = 10
const CORRUPT = 11
const FULL = 13
const CANTOPEN = 14
const NOTADB = 26

/** The shared memory of an open file takes more than this. */
const LITTLE_BYTES = 32_768

/** Another process is writing: try again soon. */
export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === BUSY
}

export function isDamage(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === CORRUPT || code === NOTADB
}

/** An `EngineError` that says what went wrong with the file and what to do about it. */
export function fileError(error: unknown, path: string, resources: readonly string[] = []): EngineError {
  if (error instanceof EngineError) return error
  const { text, transient } = explanation(error, path)
  return new EngineError(`${path} ${text}`, resources, { cause: error, transient })
}

/** `text` goes on after the path. */
export function unusableFile(path: string, text: string, transient = false): EngineError {
  return new EngineError(`${path} ${text}`, [], { transient })
}

function explanation(error: unknown, path: string): { readonly text: string; readonly transient: boolean } {
  const message = messageOf(error)
  const full = { text: `cannot be written: the disk is full (${message}); free some space`, transient: true }
  switch (sqliteCode(error) ?? (error as Partial<NodeJS.ErrnoException> | undefined)?.code ?? 'none') {
    case BUSY:
      return {
        text: 'was busy: other processes were writing to it all the time, or one was stopped in the middle of a write',
        transient: true,
      }
    case FULL:
    case 'ENOSPC':
    case 'EDQUOT':
      return full
    case CORRUPT:
    case NOTADB:
      return {
        text: `is not a database, or is damaged (${message}); when no process uses it, move it and its -wal and -shm away`,
        transient: false,
      }
    case READONLY:
    case CANTOPEN:
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return { text: `cannot be opened for writing: ${obstacle(path) ?? message}`, transient: false }
    case 'ENOTDIR':
    case 'EEXIST':
    case 'EISDIR':
    case 'ENAMETOOLONG':
    case 'ELOOP':
      return { text: `cannot be the path of a file: ${message}`, transient: false }
    case IOERR:
      // SQLite also reports this when there is no space for the memory that the processes share.
      return isFull(path) ? full : { text: `cannot be read or written: ${message}`, transient: true }
    default:
      return { text: `cannot be used: ${message}`, transient: false }
  }
}

/** Why the file cannot be written: SQLite does not say, the file system does. */
function obstacle(path: string): string | undefined {
  // SQLite needs two more files beside it, and the folder itself may have to be created.
  for (let place = path; ; place = dirname(place)) {
    try {
      accessSync(place, constants.W_OK)
      if (place !== path) return undefined
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' && dirname(place) !== place) continue
      return `${(error as Error).message}; give this user the permission to write there, or choose another path`
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
  // node:sqlite has `errcode`, libsql `rawCode`. When libsql cannot open a file, the code is in the message only.
  const code =
    property(error, 'errcode') ?? property(error, 'rawCode') ?? /^ConnectionFailed.*: (\d+)"/.exec(error.message)?.[1]
  return code === undefined ? undefined : Number(code) & 0xff
}
