import { createLocks, EngineError, type Engine, type Locks, type LocksOptions } from '../index.ts'
import type { CommandLine } from './command-line.ts'
import { connect, type Connection } from './engines/connect.ts'
import { EXIT, Failure, inWordsOf } from './exit-codes.ts'
import { nextStep } from './next-step.ts'
import type { Output } from './output.ts'
import type { Config } from './config.ts'
import { engineUrl, setting } from './settings.ts'
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
  const connection = await connect(engineUrl(line.options, config, output))
  try {
    const label = setting('label', line.options, config)?.source ?? '--label'
    const locks = inWordsOf({ label, note: '--note' }, () => createLocks(connection.engine, options(connection.engine)))
    try {
      return await work({ ...connection, locks })
    } catch (error) {
      throw named(error, connection)
    } finally {
      await locks.close().catch(() => undefined)
    }
  } finally {
    await connection.close()
  }
}

/** Which engine failed, why, and what to do. */
function named(error: unknown, { url }: Connection): unknown {
  if (!(error instanceof EngineError)) return error
  return new Failure(EXIT.engine, `the engine ${url} can't be used: ${reasonOf(error)}`, nextStep(error), error)
}

/** Why an engine failed, in one line. */
export function reasonOf(error: Error): string {
  // Some drivers add the statement in further lines.
  const said = error.message.replaceAll(/\s+/g, ' ')
  // A pool that gave up has the refused connection as its cause alone.
  const root: NodeJS.ErrnoException = rootOf(error)
  return root.syscall === undefined || said.includes(root.code ?? root.message) ? said : `${said}: ${root.message}`
}

function rootOf(error: Error): Error {
  return error.cause instanceof Error ? rootOf(error.cause) : error
}
