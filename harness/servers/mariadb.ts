import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { program, programOf, server as installed, type Program } from '../binaries.ts'
import { assignments } from '../flags.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { runTool, Server } from '../process.ts'
import { createFolder, emptyFolder, giveToServer } from '../temporary-folder.ts'

const database = 'ringfence'

export interface MariadbOptions {
  /** Starts MySQL, whatever `isMysql` says. */
  mysql?: boolean
  /** Settings such as `{ 'read-only': 'ON' }`. */
  settings?: Record<string, string>
}

export class MariadbServer extends ServerHandle {
  readonly user = 'root'
  readonly database = database

  readonly #product: Product

  constructor(server: Server, port: number, { product, data }: { product: Product; data: string }) {
    super(server, { port, url: `mysql://root@127.0.0.1:${port}/${database}` }, () => createData(product, data))
    this.#product = product
  }

  /** Runs statements by the command line client and returns the rows, a line each, columns separated by tabs. */
  sql(statements: string): Promise<string> {
    return query(this.#product, this.port, statements)
  }
}

export async function startMariadb(options: MariadbOptions = {}): Promise<MariadbServer> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('mariadb')
    const data = path.join(folder, 'data')
    const product = productOf(options)
    await createData(product, data)
    const { path: mariadbd, env } = product.server
    const settings = assignments({
      basedir: baseFolder(product),
      datadir: data,
      'bind-address': '127.0.0.1',
      port,
      socket: path.join(folder, 'socket'),
      'pid-file': path.join(folder, 'pid'),
      tmpdir: folder,
      'innodb-buffer-pool-size': '16M',
      'innodb-flush-method': 'nosync',
      ...(product.isMysql ? { mysqlx: 'OFF', 'secure-file-priv': 'NULL' } : {}),
      ...options.settings,
    })
    const server = await Server.start({
      name: `mariadb:${port}`,
      folder,
      command: { path: mariadbd, args: ['--no-defaults', '--skip-name-resolve', ...settings], env },
      port,
      ready: () => createDatabase(product, port),
    })
    return new MariadbServer(server, port, { product, data })
  })
}

/** MariaDB, or MySQL with its own programs. */
interface Product {
  readonly isMysql: boolean
  readonly server: Program
  readonly client: Program
}

function productOf({ mysql = false }: MariadbOptions): Product {
  if (mysql && !isMysql())
    return { isMysql: true, server: programOf('mysql-9', 'mysqld'), client: programOf('mysql-9', 'mysql') }
  if (isMysql()) return { isMysql: true, server: program('mysqld'), client: program('mysql') }
  return { isMysql: false, server: program('mariadbd'), client: program('mariadb') }
}

async function createDatabase(product: Product, port: number): Promise<boolean> {
  await query(product, port, `CREATE DATABASE IF NOT EXISTS ${database}`, '')
  return true
}

/** Whether the tests were asked to run on MySQL. */
export function isMysql(): boolean {
  return installed('mariadb').bin['mysqld'] !== undefined
}

async function createData(product: Product, data: string): Promise<void> {
  emptyFolder(data)
  if (product.isMysql) {
    const { path: mysqld, env } = product.server
    const first = path.join(path.dirname(data), 'first.sql')
    // Without names of hosts, its root at localhost is nobody.
    writeFileSync(first, "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n")
    giveToServer(first)
    const settings = assignments({ basedir: baseFolder(product), datadir: data, 'init-file': first })
    await runTool({ path: mysqld, args: ['--no-defaults', '--initialize-insecure', ...settings], env, cwd: data })
    return
  }
  const { path: install, env } = program('mariadb-install-db')
  const settings = assignments({
    basedir: baseFolder(product),
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
function baseFolder({ server }: Product): string {
  return path.resolve(path.dirname(server.path), '..')
}

async function query(product: Product, port: number, statements: string, inDatabase = database): Promise<string> {
  const { path: client, env } = product.client
  const settings = assignments({ host: '127.0.0.1', port, user: 'root', protocol: 'tcp', execute: statements })
  const output = await runTool({
    path: client,
    args: ['--no-defaults', '--batch', '--skip-column-names', ...settings, ...(inDatabase === '' ? [] : [inDatabase])],
    env,
  })
  return output.trimEnd()
}
