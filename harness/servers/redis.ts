import { cpSync, readdirSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import path from 'node:path'
import { program } from '../binaries.ts'
import type { Certificates } from '../certificates.ts'
import { shiftedClock, type ShiftedClock } from '../faults/clock.ts'
import { flags } from '../flags.ts'
import { startGroup, type Group } from '../group.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { runTool, Server, type Command } from '../process.ts'
import { createFolder, emptyFolder, giveToServer } from '../temporary-folder.ts'

export interface RedisOptions {
  /** Further arguments of the server, such as `['--maxmemory', '1mb']`. */
  args?: readonly string[]
  /** A file of its configuration, in the place of what tests want otherwise; `port`, `bind` and `dir` in it do not count. */
  config?: string
  /** Keeps every write across a crash: append-only file, synced each time. */
  durable?: boolean
  valkey?: boolean
  /** Lets `shiftClock` move the wall clock of this server alone. */
  clockShift?: boolean
  /** Of the default user. */
  password?: string
  /** Further users as in an ACL file, such as `alice on >secret ~lock:* +@all`. */
  acl?: readonly string[]
}

export class RedisServer extends ServerHandle {
  readonly password: string | undefined
  readonly #options: RedisOptions
  readonly #clock: ShiftedClock | undefined
  readonly #data: string

  constructor(server: Server, port: number, options: RedisOptions, { data, clock }: ServerFiles) {
    const { password } = options
    const login = password === undefined ? '' : `:${encodeURIComponent(password)}@`
    super(server, { port, url: `redis://${login}127.0.0.1:${port}` }, () => emptyFolder(data))
    this.password = password
    this.#options = options
    this.#clock = clock
    this.#data = data
  }

  /** A copy of its data as they are, in a folder beside them. `restore` puts it back after a `kill`. */
  copy(): void {
    rmSync(this.#copy, { recursive: true, force: true })
    cpSync(this.#data, this.#copy, { recursive: true })
  }

  /** Starts it again with what `copy` has copied. */
  restore(): Promise<void> {
    return this.restart({
      prepare: () => {
        emptyFolder(this.#data)
        cpSync(this.#copy, this.#data, { recursive: true })
        for (const name of readdirSync(this.#data, { recursive: true }))
          giveToServer(path.join(this.#data, String(name)))
      },
    })
  }

  get #copy(): string {
    return `${this.#data}.copy`
  }

  /** Runs one command by the engine's own command line client; rejects when the server answers an error. */
  cli(...args: string[]): Promise<string> {
    return redisCli(this.port, this.#options, args)
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

interface ServerFiles {
  data: string
  clock: ShiftedClock | undefined
}

export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  return onFreePorts(1, ([port = 0]) => startRedisOn(port, options))
}

/** Independent servers, started together. */
export async function startRedisNodes(
  count: number,
  options: RedisOptions = {},
): Promise<Group<RedisServer> & { urls: string[] }> {
  const group = await startGroup(Array.from({ length: count }, () => () => startRedis(options)))
  return { ...group, urls: group.nodes.map((node) => node.url) }
}

export async function startRedisOn(port: number, options: RedisOptions): Promise<RedisServer> {
  const flavour = options.valkey === true ? 'valkey' : 'redis'
  const folder = createFolder(flavour)
  const data = path.join(folder, 'data')
  emptyFolder(data)
  const clock = options.clockShift === true ? shiftedClock(folder) : undefined
  const server = await Server.start({
    name: `${flavour}:${port}`,
    folder,
    command: serverCommand(port, data, options, clock),
    port,
    ready: () => isServing(port, options.password),
  })
  return new RedisServer(server, port, options, { data, clock })
}

/** Arguments by which a server listens on another port with TLS; clients show no certificate. */
export function tlsArgs(port: number, { folder }: Certificates): string[] {
  return flags({
    'tls-port': port,
    'tls-cert-file': path.join(folder, 'server.pem'),
    'tls-key-file': path.join(folder, 'server-key.pem'),
    'tls-ca-cert-file': path.join(folder, 'ca.pem'),
    'tls-auth-clients': 'no',
  })
}

/** Runs the command line client against one server. */
export async function redisCli(port: number, options: RedisOptions, args: readonly string[]): Promise<string> {
  const { path: cli, env } = program(options.valkey === true ? 'valkey-cli' : 'redis-cli')
  const secret = options.password === undefined ? {} : { REDISCLI_AUTH: options.password }
  // -e: an error that the server answers becomes an exit code.
  const output = await runTool({
    path: cli,
    args: ['-e', '-h', '127.0.0.1', '-p', String(port), ...args],
    env: { ...env, ...secret },
  })
  return output.replace(/\n$/, '')
}

export async function isServing(port: number, password?: string): Promise<boolean> {
  const login = password === undefined ? '' : `AUTH ${password}\r\n`
  const answer = await converse(port, `${login}PING\r\n`)
  // A server whose default user may not even ask is up, too.
  return /^(\+PONG|-NOAUTH|-NOPERM)/m.test(answer)
}

function serverCommand(port: number, data: string, options: RedisOptions, clock: ShiftedClock | undefined): Command {
  const { path: server, env } = program(options.valkey === true ? 'valkey-server' : 'redis-server')
  const place = flags({ port, bind: '127.0.0.1', dir: data })
  if (options.config !== undefined) return { path: server, args: [options.config, ...place], env }
  // A replica that comes is served at once, and not five seconds later in case another one comes.
  const settings = [...place, ...flags({ save: '', 'repl-diskless-sync-delay': 0 })]
  const persistence =
    options.durable === true ? flags({ appendonly: 'yes', appendfsync: 'always' }) : flags({ appendonly: 'no' })
  const password = options.password === undefined ? [] : flags({ requirepass: options.password })
  const users = (options.acl ?? []).flatMap((user) => ['--user', ...user.split(' ')])
  return {
    path: server,
    args: [...settings, ...persistence, ...password, ...users, ...(options.args ?? [])],
    env: { ...env, ...clock?.env },
  }
}

/** Sends a request that ends with PING and returns all that was answered. (Sentinels do not know QUIT.) */
function converse(port: number, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.setEncoding('utf8').on('data', (text) => {
      answer += String(text)
      // PING is refused while the server loads its data, or wants a password.
      if (/^(\+PONG|-.*)\r\n$/m.test(answer)) socket.destroy()
    })
    socket.setTimeout(1_000, () => socket.destroy())
    socket.once('error', reject)
    socket.once('close', () => resolve(answer))
  })
}
