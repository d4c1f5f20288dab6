import { createLocks, EngineError, type Engine, type Locks, type LocksOptions } from '../index.ts'
import type { CommandLine } from './command-line.ts'
import { connect, type Connection } from './connect.ts'
import { EXIT, Failure } from './exit-codes.ts'
import type { Output } from './output.ts'
import { engineUrl, type Config } from './settings.ts'
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
  options: (engine: Engine) => LocksOptions,
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const connection = await connect(engineUrl(line.options, config, output))
  try {
    const locks = createLocks(connection.engine, options(connection.engine))
    try {
      return await work({ ...connection, locks })
    } catch (error) {
      throw withTrouble(error, connection)
    } finally {
      await locks.close().catch(() => undefined)
    }
  } finally {
    await connection.close()
  }
}

/** A driver tells the engine that it could not connect, and somebody else why. */
function withTrouble(error: unknown, { url, trouble }: Connection): unknown {
  if (!(error instanceof EngineError)) return error
  const why = error.code === 'QUORUM' ? error.message : (trouble() ?? error.message)
  const next = error.transient
    ? 'is the server up, and the URL right? `ringfence doctor` looks closer'
    : '`ringfence doctor` looks closer; --engine URL names another engine'
  return new Failure(EXIT.engine, `the engine ${url} can't be used: ${why}`, next, error)
}
