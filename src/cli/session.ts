import { createLocks, EngineError, type Engine, type Locks, type LocksOptions } from '../index.ts'
import type { CommandLine } from './command-line.ts'
import { connect, type Connection } from './engines/connect.ts'
import { EXIT, Failure, inWordsOf } from './exit-codes.ts'
import { nextStep } from './next-step.ts'
import type { Output } from './output.ts'
import type { Config } from './config.ts'
import { engineUrl, engineUrls, redacted, setting, type Setting } from './settings.ts'
import type { Signals } from './signals.ts'

/** What every command is called with. It answers its exit code. */
export interface Call {
  readonly line: CommandLine
  readonly config: Config
  readonly output: Output
  readonly signals: Signals
}

export interface Session extends Connection {
  readonly locks: Locks
}

/** Locks on the engine that was asked for, closed whatever happens. */
export async function withLocks<T>(
  { line, config, output }: Call,
  work: (session: Session) => Promise<T>,
  options: (engine: Engine) => LocksOptions = () => ({}),
): Promise<T> {
  return withEngine(engineUrl(line.options, config, output), { line, config }, work, options)
}

/** The same for several engines at once, by name; for at most one, by none. */
export async function withSeveralLocks<T>(
  call: Call,
  work: (sessions: ReadonlyMap<string | undefined, Session>) => Promise<T>,
): Promise<T> {
  const { line, config, output } = call
  const urls = engineUrls(line.options, output)
  if (urls === undefined) return withLocks(call, (session) => work(new Map([[undefined, session]])))
  const open = ([next, ...rest]: readonly [string, Setting][], before: ReadonlyMap<string, Session>): Promise<T> => {
    if (next === undefined) return work(before)
    const [name, url] = next
    return withEngine(url, { line, config }, (session) => open(rest, new Map([...before, [name, session]])))
  }
  return open([...urls], new Map())
}

async function withEngine<T>(
  url: Setting | undefined,
  { line, config }: Pick<Call, 'line' | 'config'>,
  work: (session: Session) => Promise<T>,
  options: (engine: Engine) => LocksOptions = () => ({}),
): Promise<T> {
  const connection = await connect(url)
  try {
    const label = setting('label', line.options, config)?.source ?? '--label'
    const locks = inWordsOf({ label, note: '--note' }, () => createLocks(connection.engine, options(connection.engine)))
    try {
      return await work({ ...connection, locks })
    } catch (error) {
      throw named(error, connection, optionOf(url))
    } finally {
      await locks.close().catch(() => undefined)
    }
  } finally {
    await connection.close()
  }
}

/** How another command gets the same engine: what is in the environment or a config file is there for it, too. */
function optionOf(url: Setting | undefined): string {
  const given = url?.source === '--engine' ? (['--engine', redacted(url.text)] as const) : url?.option
  if (given === undefined) return ''
  const [option, text] = given
  return ` ${option} ${/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text}'`}`
}

/** Which engine failed, why, and what to do. */
function named(error: unknown, { url }: Connection, option: string): unknown {
  if (!(error instanceof EngineError)) return error
  const reason = reasonOf(error)
  const next = nextStep(error, option, reason)
  return new Failure(EXIT.engine, `the engine ${url} cannot be used: ${reason}`, next, error)
}

/** Why an engine failed, in one line. */
export function reasonOf(error: Error): string {
  // Some drivers add the statement in further lines.
  const said = error.message.replaceAll(/\s+/g, ' ')
  // A pool that gave up has the reason, such as a refused connection or login, as its cause alone.
  const root: NodeJS.ErrnoException = rootOf(error)
  const isHidden =
    root.syscall !== undefined ? !said.includes(root.code ?? root.message) : POOL.test(said) && root !== error
  return isHidden && !said.includes(root.message) ? `${said}: ${root.message.replaceAll(/\s+/g, ' ')}` : said
}

const POOL = /failed to retrieve a connection from pool/

function rootOf(error: Error): Error {
  return error.cause instanceof Error ? rootOf(error.cause) : error
}
