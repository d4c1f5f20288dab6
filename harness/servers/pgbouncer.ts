import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { Client } from 'pg'
import { program } from '../binaries.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, giveToServer } from '../temporary-folder.ts'

export interface PgbouncerOptions {
  /** What a connection of the server is lent for. */
  mode: 'transaction' | 'session'
  /** How many connections to the server there are at most. */
  poolSize?: number
}

/** A pooler in front of a PostgreSQL of this machine. */
export async function startPgbouncer(postgresPort: number, options: PgbouncerOptions): Promise<ServerHandle> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('pgbouncer')
    const users = path.join(folder, 'users.txt')
    const file = path.join(folder, 'pgbouncer.ini')
    writeFileSync(users, '"postgres" ""\n')
    writeFileSync(
      file,
      `[databases]
postgres = host=127.0.0.1 port=${postgresPort} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = ${options.mode}
default_pool_size = ${options.poolSize ?? 10}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`,
    )
    for (const each of [users, file]) giveToServer(each)
    const { path: pgbouncer, env } = program('pgbouncer')
    const url = `postgres://postgres@127.0.0.1:${port}/postgres`
    const server = await Server.start({
      name: `pgbouncer:${port}`,
      folder,
      command: { path: pgbouncer, args: [file], env },
      port,
      ready: () => answers(url),
    })
    return new ServerHandle(server, { port, url }, () => undefined)
  })
}

async function answers(url: string): Promise<boolean> {
  const client = new Client(url)
  try {
    await client.connect()
    await client.query('SELECT 1')
    return true
  } finally {
    await client.end()
  }
}
