import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { program, server as installed } from '../binaries.ts'
import { assignments } from '../flags.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { runTool, Server } from '../process.ts'
import { createFolder, emptyFolder, giveToServer } from '../temporary-folder.ts'

const database = 'ringfence'

export interface MariadbOptions {
  /** Settings such as `{ 'read-only': 'ON' }`. */
  settings?: Record<string, string>
}

export class MariadbServer extends ServerHandle {
  readonly user = 'root'
  readonly database = database

  constructor(server: Server, port: number, data: string) {
    super(server, { port, url: `mysql://root@127.0.0.1:${port}/${database}` }, () => createData(data))
  }

  /** Runs statements by the command line client and returns the rows, a line each, columns separated by tabs. */
  sql(statements: string): Promise<string> {
    return query(this.port, statements)
  }
}

export async function startMariadb(options: MariadbOptions = {}): Promise<MariadbServer> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('mariadb')
    const data = path.join(folder, 'data')
    await createData(data)
    const { path: mariadbd, env } = program(isMysql() ? 'mysqld' : 'mariadbd')
    const settings = assignments({
      basedir: baseFolder(),
      datadir: data,
      'bind-address': '127.0.0.1',
      port,
      socket: path.join(folder, 'socket'),
      'pid-file': path.join(folder, 'pid'),
      tmpdir: folder,
      'innodb-buffer-pool-size': '16M',
      'innodb-flush-method': 'nosync',
      ...(isMysql() ? { mysqlx: 'OFF', 'secure-file-priv': 'NULL' } : {}),
      ...options.settings,
    })
    const server = await Server.start({
      name: `mariadb:${port}`,
      folder,
      command: { path: mariadbd, args: ['--no-defaults', '--skip-name-resolve', ...settings], env },
      port,
      ready: () => createDatabase(port),
    })
    return new MariadbServer(server, port, data)
  })
}

async function createDatabase(port: number): Promise<boolean> {
  await query(port, `CREATE DATABASE IF NOT EXISTS ${database}`, '')
  return true
}

/** Whether the tests were asked to run on MySQL. */
export function isMysql(): boolean {
  return installed('mariadb').bin['mysqld'] !== undefined
}

async function createData(data: string): Promise<void> {
  emptyFolder(data)
  if (isMysql()) {
    const { path: mysqld, env } = program('mysqld')
    const first = path.join(path.dirname(data), 'first.sql')
    // Without names of hosts, its root at localhost is nobody.
    writeFileSync(first, "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n")
    giveToServer(first)
    const settings = assignments({ basedir: baseFolder(), datadir: data, 'init-file': first })
    await runTool({ path: mysqld, args: ['--no-defaults', '--initialize-insecure', ...settings], env, cwd: data })
    return
  }
  const { path: install, env } = program('mariadb-install-db')
  const settings = assignments({
    basedir: baseFolder(),
    datadir: data,
    // Servers of another process namespace may have the same number, and with it the same names of files in /tmp.
    tmpdir: data,
    'auth-root-authentication-method': 'normal',
  })
  await runTool({
    path: install,
    args: ['--no-defaults', '--skip-test-db', ...settings],
    // Not the folder of all: a server that starts removes the temporary tables that it finds there, whosever they are.
    env: { ...env, TMPDIR: path.dirname(data) },
    cwd: data,
  })
}

/** The server looks for its messages and scripts in /usr unless told where it was extracted to. */
function baseFolder(): string {
  return path.resolve(path.dirname(program(isMysql() ? 'mysqld' : 'mariadbd').path), '..')
}

async function query(port: number, statements: string, inDatabase: string = database): Promise<string> {
  const { path: client, env } = program(isMysql() ? 'mysql' : 'mariadb')
  const settings = assignments({ host: '127.0.0.1', port, user: 'root', protocol: 'tcp', execute: statements })
  const output = await runTool({
    path: client,
    args: ['--no-defaults', '--batch', '--skip-column-names', ...settings, ...(inDatabase === '' ? [] : [inDatabase])],
    env,
  })
  return output.trimEnd()
}
