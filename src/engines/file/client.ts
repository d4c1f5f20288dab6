import { createRequire } from 'node:module'
import { EngineError } from '../../errors.ts'

/** What node:sqlite and libsql have in common. */
export interface SqliteConnection {
  exec(sql: string): void
  prepare(sql: string): SqliteStatement
  close(): void
}

export interface SqliteStatement {
  get(...values: readonly SqliteValue[]): SqliteRow | undefined
  all(...values: readonly SqliteValue[]): readonly SqliteRow[]
  run(...values: readonly SqliteValue[]): unknown
}

export type SqliteValue = string | number | null

export type SqliteRow = Readonly<Record<string, unknown>>

export interface SqliteLibrary {
  readonly name: 'node:sqlite' | 'libsql'
  readonly connect: (url: string) => SqliteConnection
}

let loaded: Promise<SqliteLibrary> | undefined

/** Node's own SQLite if it has one, otherwise libsql. Only when it is needed: libsql takes about 10 ms to load, more by `import`. */
export function loadSqlite(): Promise<SqliteLibrary> {
  loaded ??= load()
  return loaded
}

async function load(): Promise<SqliteLibrary> {
  const builtIn = builtInLibrary()
  if (builtIn !== undefined) return library('node:sqlite', builtIn.DatabaseSync)
  try {
    const require = createRequire(import.meta.url)
    return library('libsql', require('libsql'))
  } catch (cause) {
    loaded = undefined
    const advice =
      'run `npm install libsql` (with -g if the command was installed with -g), or use Node 22.13 or later, which has SQLite'
    throw new EngineError(`the file engine needs SQLite: ${advice}`, [], { cause, transient: false })
  }
}

/**
 * Not by `import`: TypeScript and bundlers for older versions of Node do not know the module. When it is loaded, Node warns on
 * stderr that it is experimental. Users can do nothing about that, and cron would send a mail about it at every run.
 */
function builtInLibrary(): { readonly DatabaseSync: unknown } | undefined {
  const emitWarning = Reflect.get(process, 'emitWarning') as (...warning: readonly unknown[]) => void
  process.emitWarning = (...warning: readonly unknown[]) => {
    if (!String(warning[0]).startsWith('SQLite is an experimental feature'))
      Reflect.apply(emitWarning, process, warning)
  }
  try {
    return process.getBuiltinModule('node:sqlite') as { readonly DatabaseSync: unknown } | undefined
  } finally {
    process.emitWarning = emitWarning
  }
}

function library(name: SqliteLibrary['name'], Database: unknown): SqliteLibrary {
  const Constructor = Database as new (url: string) => SqliteConnection
  return { name, connect: (url) => new Constructor(url) }
}
