import { renameSync } from 'node:fs'
import { open, realpath, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { openDatabase, type Database } from '../engines/file/database.ts'
import { fileError, isBusy } from '../engines/file/errors.ts'
import { GuardError } from '../errors.ts'
import type { Random } from '../random.ts'
import {
  fencedOrThrow,
  isAt,
  passes,
  GuardContext,
  StoreGuard,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import { fenceOf } from './rows.ts'

/** For the processes of one machine, and a file system of that machine. */
export interface FileGuard extends Guard, AsyncDisposable {
  /**
   * Writes the data to a new file beside `path`, and renames it to `path` while the fence is locked: a reader of the path
   * finds either the whole old file or the whole new one. A stale holder's data never gets there.
   */
  replace(lease: Fenced, path: string, data: string | Uint8Array): Promise<void>
  /** Closes the database. */
  close(): Promise<void>
}

/**
 * A guard for files. The fences are in a database of the file engine: the path that was given to `file()`, or another one.
 */
export function fileGuard(database: string, options: GuardOptions = {}): FileGuard {
  return new FileStoreGuard(database, options)
}

const TABLE = `CREATE TABLE IF NOT EXISTS fence (
  resource TEXT PRIMARY KEY, engine TEXT NOT NULL, token TEXT NOT NULL
) STRICT, WITHOUT ROWID`
/** A transaction takes much less time than this; the jitter keeps waiting processes apart. */
const LONGEST_PAUSE_MS = 4

class FileStoreGuard extends StoreGuard implements FileGuard {
  readonly #path: string
  readonly #context: GuardContext
  #database: Promise<Database> | undefined

  constructor(path: string, options: GuardOptions) {
    const context = new GuardContext('file', options)
    super(context)
    this.#context = context
    if (typeof path !== 'string' || path === '') {
      throw new TypeError(`database: expected the path of a file, got ${shown(path)}`)
    }
    this.#path = resolve(path)
  }

  async replace(lease: Fenced, path: string, data: string | Uint8Array): Promise<void> {
    const fenced = fencedOrThrow(lease)
    if (typeof path !== 'string' || path === '') throw new TypeError(`path: expected a path, got ${shown(path)}`)
    if (typeof data !== 'string' && !(data instanceof Uint8Array)) {
      throw new TypeError(`data: expected a string or bytes, got ${shown(data)}`)
    }
    const target = await finalPath(path)
    const draft = join(dirname(target), `.${basename(target).slice(0, 100)}.${this.#context.random.id()}.draft`)
    try {
      await writeDraft(draft, target, data)
      // First the fence alone, committed: if we died after the renaming and before a commit that raises the fence, our file
      // would be there without its fence, and an older holder could replace it.
      await this.raise(fenced)
      // Then again, with the database locked: nobody can enter between the look at the fence and the renaming.
      await this.#locked(fenced, (database) => {
        this.#check(database, fenced)
        renameSync(draft, target)
      })
      await syncFolder(dirname(target))
    } finally {
      await rm(draft, { force: true })
    }
  }

  async close(): Promise<void> {
    const opened = this.#database
    this.#database = undefined
    // A database that could not be opened need not be closed.
    const database = await opened?.catch(() => undefined)
    database?.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    await this.#locked(lease, (database) => {
      const seen = this.#check(database, lease, from)
      const lower = lease.resources.filter((_resource, index) => !isAt(lease, seen[index]))
      const upsert = database.statement(
        `INSERT INTO fence VALUES (?1, ?2, ?3) ON CONFLICT (resource) DO UPDATE SET engine = ?2, token = ?3`,
      )
      for (const resource of lower) upsert.run(resource, lease.engine, String(lease.token))
    })
  }

  #check(database: Database, lease: Fenced, from?: string): readonly (Fence | undefined)[] {
    const look = database.statement('SELECT engine, token FROM fence WHERE resource = ?')
    return lease.resources.map((resource) => {
      const row = look.get(resource)
      const seen = row === undefined ? undefined : fenceOf(row)
      if (!passes(lease, seen, from)) throw this.#context.refusal(lease, resource, seen!)
      return seen
    })
  }

  /** In a transaction that is on the disk when it is done; waits while another process has the database locked. */
  async #locked(lease: Fenced, work: (database: Database) => void): Promise<void> {
    const { resources } = lease
    let late: GuardError | undefined
    const deadline = this.#context.deadline(resources, (error) => (late = error))
    try {
      for (;;) {
        try {
          const database = await this.#open(resources)
          return database.durably(() => work(database))
        } catch (error) {
          if (!isBusy(error)) throw fromDatabase(error, this.#path, resources)
          if (late !== undefined) throw new GuardError(late.message, resources, { cause: error })
        }
        await sleep(this.#context.clock, LONGEST_PAUSE_MS * this.#context.random.fraction())
      }
    } finally {
      deadline.cancel()
    }
  }

  async #open(resources: readonly string[]): Promise<Database> {
    this.#database ??= openWithTable(this.#path, this.#context.random)
    try {
      const database = await this.#database
      if (database.place() === 'here') return database
      database.close()
    } catch (error) {
      this.#database = undefined
      throw error
    }
    this.#database = undefined
    // Another process may have created a new one, with lower fences in it. That must not go unnoticed.
    throw new GuardError(`${this.#path} was removed or replaced, and with it the fences that it had`, resources)
  }
}

async function openWithTable(path: string, random: Random): Promise<Database> {
  const database = await openDatabase(path, { create: true, random })
  if (database === undefined) throw new Error(`${path} was not made`)
  try {
    database.statement(TABLE).run()
    return database
  } catch (error) {
    database.close()
    throw error
  }
}

/** Explains SQLite's errors. The guard's own and those of the file system stay as they are. */
function fromDatabase(error: unknown, path: string, resources: readonly string[]): unknown {
  const isOfSqlite = error instanceof Error && (Reflect.has(error, 'errcode') || Reflect.has(error, 'rawCode'))
  return isOfSqlite ? fileError(error, path, resources) : error
}

/** A symbolic link stays one: the file that it points to is replaced. */
async function finalPath(path: string): Promise<string> {
  try {
    return await realpath(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return resolve(path)
  }
}

async function writeDraft(draft: string, target: string, data: string | Uint8Array): Promise<void> {
  const before = await stat(target).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  const file = await open(draft, 'wx')
  try {
    await file.writeFile(data)
    if (before !== undefined) await file.chmod(before.mode & 0o7777)
    // Before the renaming: after a loss of power the name must not lead to a file without its content.
    await file.sync()
  } finally {
    await file.close()
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
