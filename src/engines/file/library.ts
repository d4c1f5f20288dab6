import { EngineError } from '../../errors.ts'

/** What both libraries have in common. */
export interface Connection {
  exec(sql: string): void
  prepare(sql: string): Statement
  close(): void
}

export interface Statement {
  get(...values: readonly Value[]): Row | undefined
  all(...values: readonly Value[]): readonly Row[]
  run(...values: readonly Value[]): unknown
}

export type Value = string | number | null

export type Row = Readonly<Record<string, unknown>>

export interface Library {
  readonly name: 'node:sqlite' | 'libsql'
  readonly connect: (url: string) => Connection
}

let loaded: Promise<Library> | undefined

/** SQLite as Node has it, else as libsql has it; only when it is needed, since libsql takes some 30 ms to load. */
export function loadLibrary(): Promise<Library> {
  loaded ??= load()
  return loaded
}

async function load(): Promise<Library> {
  const builtIn = builtInLibrary()
  if (builtIn !== undefined) return library('node:sqlite', builtIn.DatabaseSync)
  try {
    return library('libsql', (await import('libsql')).default)
  } catch (cause) {
    loaded = undefined
    const advice = 'run `npm install libsql`, or use Node 22.13 or later, which brings SQLite'
    throw new EngineError(`the file engine needs SQLite: ${advice}`, [], { cause, transient: false })
  }
}

/**
 * Not by `import`: TypeScript and bundlers for older versions of Node don't know the module. Node warns on loading it that it
 * is experimental, on stderr. That is for us to know; a command that cron runs would send a mail about it every time.
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

function library(name: Library['name'], Database: unknown): Library {
  const Constructor = Database as new (url: string) => Connection
  return { name, connect: (url) => new Constructor(url) }
}
