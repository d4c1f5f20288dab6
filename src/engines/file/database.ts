import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  realpathSync,
  rmSync,
  statSync,
  type Stats,
} from 'node:fs'
import { dirname } from 'node:path'
import { pathToFileURL } from 'node:url'
import { EngineError } from '../../errors.ts'
import { systemRandom } from '../../random.ts'
import { explained, isBusy, isDamage, unusable } from './failures.ts'
import { loadLibrary, type Connection, type Library, type Statement } from './library.ts'

/** 'ring' in ASCII: tells our files from other programs' databases. */
const APPLICATION_ID = 0x72696e67
/** Of the tables below. A newer one is refused: its rows might mean something else. */
const SCHEMA_VERSION = 1

const SCHEMA = `
  CREATE TABLE counter (
    -- The last token given out, the number that no token exceeds before it was raised on the disk itself, and in which boot.
    token INTEGER NOT NULL, reserved INTEGER NOT NULL, boot TEXT NOT NULL
  ) STRICT;
  INSERT INTO counter VALUES (0, 0, '');
  CREATE TABLE lease (
    resource TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL, boot TEXT NOT NULL,
    since_ms REAL NOT NULL, renewed_ms REAL NOT NULL, until_ms REAL NOT NULL, process TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE ticket (
    number INTEGER PRIMARY KEY, owner TEXT NOT NULL UNIQUE, boot TEXT NOT NULL,
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
  /** Make the file if there is none; otherwise the answer is undefined. */
  readonly create: boolean
}

/** Opens the file, or makes it. Rejects with `EngineError`, or with what `isBusy` knows. */
export async function openDatabase(path: string, { create }: OpenOptions): Promise<Database | undefined> {
  const library = await loadLibrary()
  try {
    if (stat(path) === undefined) {
      if (!create) return undefined
      assertNoRemains(path)
      createDatabase(path, library)
    }
    const before = stat(path)
    if (before === undefined) throw unusable(path, 'was removed while it was being opened', true)
    if (!before.isFile()) throw unusable(path, 'is not a file; pass the path of a file')
    // We never leave an empty one behind, and SQLite would take it for a new database: the counter would start anew.
    if (before.size === 0) throw unusable(path, 'is empty. If nothing uses it, remove it')
    // By the real name, as SQLite names the files beside it.
    const realPath = realpathSync(path)
    const connection = library.connect(`${pathToFileURL(realPath).href}?mode=rw`)
    try {
      return new Database(path, connection, { library: library.name, realPath, opened: before })
    } catch (error) {
      connection.close()
      throw error
    }
  } catch (error) {
    throw isBusy(error) ? error : explained(error, path)
  }
}

/** SQLite would play an old log into a new file, and those who still use the old one would share it with us. */
function assertNoRemains(path: string): void {
  const remains = [`${path}-wal`, `${path}-shm`].filter((beside) => stat(beside) !== undefined)
  // They may be those of a file that someone else has just made.
  if (remains.length === 0 || stat(path) !== undefined) return
  const names = remains.join(' and ')
  throw unusable(
    path,
    `is missing, but ${names} of it are there. Put it back, or when nothing uses it, remove them too`,
  )
}

/**
 * Under another name first: whoever finds a file at the path finds a whole one, also if we are killed in between. Of two
 * who make it at the same time, the second finds the first one's.
 */
function createDatabase(path: string, library: Library): void {
  const folder = dirname(path)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const draft = `${path}.${systemRandom.id().slice(0, 12)}.new`
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

/** The path no longer leads to the file that is open: whoever opens it now sees another one, or makes it. */
export class Displaced extends EngineError {
  readonly place: 'missing' | 'replaced'

  constructor(path: string, place: 'missing' | 'replaced', resources: readonly string[]) {
    const what = place === 'missing' ? 'was removed' : 'was replaced by another file'
    super(`${path} ${what} while in use; put it back, or wait until the leases in it are over`, resources)
    this.place = place
  }
}

/** One connection to the file. All calls are synchronous and short; whoever finds it busy comes back later. */
export class Database {
  readonly path: string
  /** Every commit is written to it first. */
  readonly logPath: string
  readonly library: string
  readonly #connection: Connection
  readonly #statements = new Map<string, Statement>()
  readonly #device: number
  readonly #inode: number

  constructor(
    path: string,
    connection: Connection,
    { library, realPath, opened }: { library: string; realPath: string; opened: Stats },
  ) {
    this.path = path
    this.logPath = `${realPath}-wal`
    this.library = library
    this.#connection = connection
    this.#device = opened.dev
    this.#inode = opened.ino
    this.#assertOurs()
    if (this.place() !== 'here') throw unusable(path, 'was replaced while it was being opened', true)
    // A commit reaches the operating system, which outlives us, but not the disk. What must, see `durably`.
    connection.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
  }

  /** Prepared once. */
  statement(sql: string): Statement {
    let statement = this.#statements.get(sql)
    if (statement === undefined) {
      statement = this.#connection.prepare(sql)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  /** All of it or nothing, and nobody else writes meanwhile. Throws what SQLite throws, also that the file is busy. */
  transaction<T>(work: () => T): T {
    this.#connection.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#connection.exec('COMMIT')
      return result
    } catch (error) {
      // Some failures have rolled it back already.
      try {
        this.#connection.exec('ROLLBACK')
      } catch {
        // No transaction is open: that is what was wanted.
      }
      throw error
    }
  }

  /** A transaction that is on the disk when it is done, and with it all that came before. */
  durably<T>(work: () => T): T {
    this.#connection.exec('PRAGMA synchronous = FULL')
    try {
      return this.transaction(work)
    } finally {
      this.#connection.exec('PRAGMA synchronous = NORMAL')
    }
  }

  /** What is wrong with the file, in SQLite's words. */
  damage(): readonly string[] {
    try {
      const lines = this.#connection.prepare('PRAGMA quick_check(3)').all()
      return lines.map((line) => String(line['quick_check'])).filter((line) => line !== 'ok')
    } catch (error) {
      if (!isDamage(error)) throw error
      return [(error as Error).message]
    }
  }

  /** Does the path still lead to the file that we have open? Others who open it now may see a different one. */
  place(): 'here' | 'missing' | 'replaced' {
    const now = stat(this.path)
    if (now === undefined) return 'missing'
    return now.ino === this.#inode && now.dev === this.#device ? 'here' : 'replaced'
  }

  close(): void {
    // libsql keeps the file open until the garbage collector has taken the statements too.
    this.#statements.clear()
    this.#connection.close()
  }

  #assertOurs(): void {
    const id = this.#pragma('application_id')
    if (id !== APPLICATION_ID) throw unusable(this.path, 'is a database of another program; choose another path')
    const version = this.#pragma('user_version')
    if (version !== SCHEMA_VERSION) {
      const known = `${SCHEMA_VERSION}; use the same version of ringfence everywhere`
      throw unusable(this.path, `has version ${String(version)} of the tables, and this ringfence knows ${known}`)
    }
  }

  #pragma(name: string): unknown {
    return this.#connection.prepare(`PRAGMA ${name}`).get()?.[name]
  }
}
