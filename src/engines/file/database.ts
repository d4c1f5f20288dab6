import {
  closeSync,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  type Stats,
} from 'node:fs'
import { dirname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { loadSqlite, type SqliteConnection, type SqliteLibrary, type SqliteStatement } from './client.ts'
import { fileError, isBusy, isDamage, unusableFile } from './errors.ts'

/** 'ring' in ASCII: tells our files from other programs' databases. */
const APPLICATION_ID = 0x72696e67
/** The version of the tables below. A newer one is refused: its rows might mean something else. */
const SCHEMA_VERSION = 2

const SCHEMA = `
  CREATE TABLE counter (
    -- The last token granted; the highest token that may be granted before this number is raised on the disk; in which boot.
    token INTEGER NOT NULL, reserved INTEGER NOT NULL, boot TEXT NOT NULL
  ) STRICT;
  INSERT INTO counter VALUES (0, 0, '');
  CREATE TABLE lease (
    -- One row for a writer, or one for each reader.
    resource TEXT NOT NULL, owner TEXT NOT NULL, shared INTEGER NOT NULL, token INTEGER NOT NULL, boot TEXT NOT NULL,
    since_ms REAL NOT NULL, renewed_ms REAL NOT NULL, until_ms REAL NOT NULL, process TEXT, PRIMARY KEY (resource, owner)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE ticket (
    -- The number is the µs of the machine's clock from which the place counts, or the next one that is free.
    number INTEGER PRIMARY KEY, owner TEXT NOT NULL UNIQUE, shared INTEGER NOT NULL, boot TEXT NOT NULL,
    entered_ms REAL NOT NULL, called_ms REAL, process TEXT
  ) STRICT;
  CREATE TABLE queue (
    resource TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (resource, number)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX queue_number ON queue (number);
  PRAGMA application_id = ${APPLICATION_ID};
  PRAGMA user_version = ${SCHEMA_VERSION};
`

export interface OpenOptions {
  /** Creates the file if it does not exist. Without it, a file that does not exist is undefined. */
  readonly create: boolean
  readonly random: Random
}

/** Opens or creates the file. Rejects with an `EngineError`, or with an error for which `isBusy` is true. */
export async function openDatabase(path: string, { create, random }: OpenOptions): Promise<Database | undefined> {
  const library = await loadSqlite()
  try {
    if (stat(path) === undefined) {
      if (!create) return undefined
      assertNoLooseLink(path)
      assertNoLogLeft(path)
      createDatabase(path, library, random)
    }
    const before = stat(path)
    if (before === undefined) throw unusableFile(path, 'was removed while it was being opened', true)
    if (!before.isFile()) throw unusableFile(path, 'is not a file; pass the path of a file')
    // We never leave an empty file behind, and SQLite would take it for a new database: the counter would start again.
    if (before.size === 0) throw unusableFile(path, 'is empty; if no process uses it, remove it')
    // The real path: SQLite names the files beside it after that.
    const realPath = realpathSync(path)
    const connection = library.connect(`${pathToFileURL(realPath).href}?mode=rw`)
    try {
      return new Database(path, connection, { library: library.name, realPath, opened: before })
    } catch (error) {
      connection.close()
      throw error
    }
  } catch (error) {
    throw isBusy(error) ? error : fileError(error, path)
  }
}

/** A file cannot be put in the place of a link, and the folder that it leads to may be on a disk that is not mounted yet. */
function assertNoLooseLink(path: string): void {
  const link = lstatSync(path, { throwIfNoEntry: false })
  // Another process may have created the file meanwhile.
  if (link?.isSymbolicLink() !== true || stat(path) !== undefined) return
  throw unusableFile(
    path,
    `is a symbolic link to ${resolve(dirname(path), readlinkSync(path))}, and no file is there; name that file itself, and it is created, or put the file there`,
  )
}

/** SQLite would replay an old log into a new file, and processes that still use the old file would share the log with us. */
function assertNoLogLeft(path: string): void {
  const left = [`${path}-wal`, `${path}-shm`].filter((beside) => stat(beside) !== undefined)
  // They may belong to a file that another process has just created.
  if (left.length === 0 || stat(path) !== undefined) return
  const names = left.join(' and ')
  throw unusableFile(
    path,
    `is missing, but ${names} ${left.length === 1 ? 'exists' : 'exist'}; put it back, or if no process uses it, remove what is left of it`,
  )
}

/**
 * Under another name first: a file at the path is always a whole one, also if we are killed in between. If two processes
 * create it at the same time, the second one finds the file of the first.
 */
function createDatabase(path: string, library: SqliteLibrary, random: Random): void {
  const folder = dirname(path)
  createFolder(folder)
  const draft = `${path}.${random.id().slice(0, 12)}.new`
  try {
    closeSync(openSync(draft, 'wx', 0o600))
    const connection = library.connect(pathToFileURL(draft).href)
    try {
      connection.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN; ${SCHEMA} COMMIT`)
    } finally {
      connection.close()
    }
    link(draft, path)
    const handle = openSync(folder, 'r')
    fsyncSync(handle)
    closeSync(handle)
  } finally {
    for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(draft + suffix, { force: true })
  }
}

/** With those above it. `recursive: true` never ends where a folder cannot be made although the one above it is there, as in /proc. */
function createFolder(folder: string): void {
  if (stat(folder) !== undefined) return
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Another process was quicker.
    if (code === 'EEXIST') return
    const above = dirname(folder)
    if (code !== 'ENOENT' || stat(above) !== undefined) throw error
    createFolder(above)
    createFolder(folder)
  }
}

function link(draft: string, path: string): void {
  try {
    linkSync(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

function stat(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false })
}

/** The path no longer leads to the file that is open: a process that opens the path now gets another file. */
export class FileMovedError extends EngineError {
  readonly place: 'missing' | 'replaced'

  constructor(path: string, place: 'missing' | 'replaced', resources: readonly string[]) {
    const what = place === 'missing' ? 'was removed' : 'was replaced by another file'
    super(`${path} ${what} while in use; put it back, or wait until the leases in it have ended`, resources)
    this.place = place
  }
}

/** One connection to the file. All calls are synchronous and short; a call that finds the file busy fails at once. */
export class Database {
  readonly path: string
  /** Every commit is written to it first. */
  readonly logPath: string
  readonly library: string
  readonly #connection: SqliteConnection
  readonly #statements = new Map<string, SqliteStatement>()
  readonly #device: number
  readonly #inode: number

  constructor(
    path: string,
    connection: SqliteConnection,
    { library, realPath, opened }: { library: string; realPath: string; opened: Stats },
  ) {
    this.path = path
    this.logPath = `${realPath}-wal`
    this.library = library
    this.#connection = connection
    this.#device = opened.dev
    this.#inode = opened.ino
    this.#assertOurs()
    if (this.place() !== 'here') throw unusableFile(path, 'was replaced while it was being opened', true)
    // A commit reaches the operating system, which outlives this process, but not the disk. For the disk there is `durably`.
    connection.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
  }

  /** Prepared once. */
  statement(sql: string): SqliteStatement {
    let statement = this.#statements.get(sql)
    if (statement === undefined) {
      statement = this.#connection.prepare(sql)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  /** All or nothing, and no other process writes meanwhile. Throws SQLite's errors, also when the file is busy. */
  transaction<T>(work: () => T): T {
    this.#connection.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#connection.exec('COMMIT')
      return result
    } catch (error) {
      // After some failures SQLite has already rolled back.
      try {
        this.#connection.exec('ROLLBACK')
      } catch {
        // No transaction is open any more.
      }
      throw error
    }
  }

  /** A transaction that is on the disk when this returns, together with all earlier ones. */
  durably<T>(work: () => T): T {
    this.#connection.exec('PRAGMA synchronous = FULL')
    try {
      return this.transaction(work)
    } finally {
      this.#connection.exec('PRAGMA synchronous = NORMAL')
    }
  }

  /** What SQLite finds wrong with the file. */
  damage(): readonly string[] {
    try {
      const lines = this.#connection.prepare('PRAGMA quick_check(3)').all()
      return lines.map((line) => String(line['quick_check'])).filter((line) => line !== 'ok')
    } catch (error) {
      if (!isDamage(error)) throw error
      return [(error as Error).message]
    }
  }

  /** Whether the path still leads to the file that we have open. Processes that open it now may get another one. */
  place(): 'here' | 'missing' | 'replaced' {
    const now = stat(this.path)
    if (now === undefined) return 'missing'
    return now.ino === this.#inode && now.dev === this.#device ? 'here' : 'replaced'
  }

  close(): void {
    // libsql keeps the file open until the statements are garbage-collected too.
    this.#statements.clear()
    this.#connection.close()
  }

  #assertOurs(): void {
    const id = this.#pragma('application_id')
    if (id !== APPLICATION_ID) throw unusableFile(this.path, 'is a database of another program; choose another path')
    const version = this.#pragma('user_version')
    if (version !== SCHEMA_VERSION) {
      const advice = 'use the same version of ringfence in every process'
      const known = `version ${String(version)} of the tables, and this ringfence knows version ${SCHEMA_VERSION}`
      throw unusableFile(this.path, `has ${known}; ${advice}`)
    }
  }

  #pragma(name: string): unknown {
    return this.#connection.prepare(`PRAGMA ${name}`).get()?.[name]
  }
}
