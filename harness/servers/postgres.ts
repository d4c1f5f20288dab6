import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { program, programOf, type Program } from '../binaries.ts'
import { shiftedClock, type ShiftedClock } from '../faults/clock.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { runTool, Server } from '../process.ts'
import { createFolder, emptyFolder } from '../temporary-folder.ts'

export interface PostgresOptions {
  /** Settings such as `{ max_connections: '20' }`. */
  settings?: Record<string, string>
  /** Lets `shiftClock` move the wall clock of this server alone. */
  clockShift?: boolean
  /** Starts as a replica of nobody: it only reads. */
  standby?: boolean
  /** Starts as a copy of this one, and follows it. */
  replicaOf?: PostgresServer
  /** Another version than the others, as the manifest names it: `postgres-18`. */
  version?: string
}

export class PostgresServer extends ServerHandle {
  readonly user = 'postgres'
  readonly database = 'postgres'
  readonly #clock: ShiftedClock | undefined

  constructor(server: Server, port: number, empty: () => Promise<void>, clock: ShiftedClock | undefined) {
    super(server, { port, url: `postgres://postgres@127.0.0.1:${port}/postgres` }, empty)
    this.#clock = clock
  }

  /** Runs statements by psql and returns the rows, a line each, columns separated by `|`. */
  sql(statements: string): Promise<string> {
    return psql(this.port, statements)
  }

  /** Needs `clockShift`. Sets how far this server's wall clock is ahead of the machine's. */
  shiftClock(offsetMs: number): void {
    if (this.#clock === undefined) throw new Error('start the server with clockShift: true to shift its clock')
    this.#clock.shift(offsetMs)
  }

  /** Needs `clockShift`. Makes this server's wall clock stand still at this time (ms since 1970), until it is called again. */
  stopClock(wallMs: number): void {
    if (this.#clock === undefined) throw new Error('start the server with clockShift: true to stop its clock')
    this.#clock.stop(wallMs)
  }
}

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('postgres')
    const data = path.join(folder, 'data')
    const { version } = options
    const named = (name: string): Program => (version === undefined ? program(name) : programOf(version, name))
    const empty = (): Promise<void> => createData(data, named('initdb'))
    await (options.replicaOf === undefined ? empty() : copyData(data, options.replicaOf))
    if (options.standby === true) writeFileSync(path.join(data, 'standby.signal'), '')
    const clock = options.clockShift === true ? shiftedClock(folder) : undefined
    const { path: postgres, env } = named('postgres')
    // The compiler for queries would need a library of 100 MB that is not fetched.
    const settings = Object.entries({ fsync: 'off', jit: 'off', ...options.settings })
    const server = await Server.start({
      name: `postgres:${port}`,
      folder,
      command: {
        path: postgres,
        args: [
          '-D',
          data,
          '-p',
          String(port),
          '-h',
          '127.0.0.1',
          '-k',
          folder,
          ...settings.flatMap(([name, value]) => ['-c', `${name}=${value}`]),
        ],
        env: { ...env, ...clock?.env },
      },
      port,
      ready: async () => (await psql(port, 'SELECT 1')) === '1',
      // Fast shutdown: TERM would wait for the clients to leave.
      stopSignal: 'SIGINT',
    })
    return new PostgresServer(server, port, empty, clock)
  })
}

async function createData(data: string, { path: initdb, env }: Program): Promise<void> {
  emptyFolder(data)
  const args = ['-D', data, '-U', 'postgres', '-A', 'trust', '-N', '-E', 'UTF8', '--locale=C']
  await runTool({ path: initdb, args, env, cwd: data })
}

/** With the settings that make a replica of it. */
async function copyData(data: string, { host, port, user }: PostgresServer): Promise<void> {
  const { path: psql, env } = program('psql')
  const from = ['-h', host, '-p', String(port), '-U', user]
  const how = ['--write-recovery-conf', '--checkpoint=fast', '--no-sync']
  await runTool({ path: path.join(path.dirname(psql), 'pg_basebackup'), args: [...from, '-D', data, ...how], env })
}

async function psql(port: number, statements: string): Promise<string> {
  const { path: client, env } = program('psql')
  const where = ['-h', '127.0.0.1', '-p', String(port), '-U', 'postgres', '-d', 'postgres']
  // No settings file of the user, unaligned, rows alone, quiet, end at the first error.
  const how = ['-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1']
  const output = await runTool({ path: client, args: [...where, ...how, '-c', statements], env })
  return output.trimEnd()
}
