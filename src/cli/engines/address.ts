import { readFileSync } from 'node:fs'
import { didYouMean } from '../command-line.ts'
import { usage } from '../exit-codes.ts'
import { redacted } from '../settings.ts'

export interface Host {
  readonly host: string
  readonly port: number
}

export interface Login {
  readonly user: string | undefined
  readonly password: string | undefined
}

/** An engine's URL in parts. Not by `URL`, which knows nothing of several hosts. */
export interface Address extends Login {
  readonly scheme: string
  readonly hosts: readonly Host[]
  /** One for each host. A host without a login of its own has that of the first, which is `user` and `password`. */
  readonly logins: readonly Login[]
  /** Without the slash before it. */
  readonly path: string
  readonly parameters: Parameters
}

/** What is wrong with a URL of any scheme, in our words and before a driver sees it. */
export function assertWellFormed(url: string): void {
  try {
    decodeURIComponent(url)
  } catch {
    throw usage(
      `--engine: expected two hexadecimal digits of UTF-8 after each %, got ${redacted(url)}`,
      'write % as %25, also in a password',
    )
  }
  const hosts = /^(?!file:)[a-z0-9+]+:\/\/([^/?#]*)/i.exec(url)?.[1] ?? ''
  for (const host of hosts.split(/[,@]/)) {
    const port = /:(\d+)$/.exec(host)?.[1]
    if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535))
      throw usage(`--engine: expected a port from 1 to 65535, got ${port} in ${redacted(url)}`)
  }
}

export interface Expected {
  /** Of a host that names none. */
  readonly port: number
  /** A URL that is right. */
  readonly example: string
  /** Default: one for all hosts, before the first. */
  readonly logins?: 'one' | 'each'
}

export function parseAddress(url: string, { port, example, logins = 'one' }: Expected): Address {
  const match = /^([a-z][a-z0-9+]*):\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i.exec(url)
  if (match === null) throw usage(`--engine: expected a URL such as ${example}, got ${redacted(url)}`)
  const [, scheme = '', authority = '', path = '', query = ''] = match
  const servers = authority.split(',').map((text) => parseServer(text, port, url))
  const [first] = servers
  if (logins === 'one' && servers.some(({ login }) => login !== undefined && login !== first?.login)) {
    throw usage(
      `--engine: expected one login for all hosts, before the first, got ${redacted(url)}`,
      `${scheme}://USER:PASSWORD@a,b,c; ${ENCODED}`,
    )
  }
  const shared = first?.login ?? NOBODY
  return {
    ...shared,
    scheme: scheme.toLowerCase(),
    hosts: servers.map(({ host }) => host),
    logins: servers.map(({ login }) => login ?? shared),
    path: decodeURIComponent(path),
    parameters: new Parameters(query, url),
  }
}

const NOBODY: Login = { user: undefined, password: undefined }

const ENCODED = 'a comma, a slash or an @ in a password is written as %2C, %2F or %40'

/** What is wrong may be a part of a password: the URL is shown, without it, and never the piece. */
function parseServer(text: string, defaultPort: number, url: string): { host: Host; login: Login | undefined } {
  const match = /^(?:([^@:]*)(?::([^@]*))?@)?(\[[0-9a-f:.]+\]|[^:@[\]]+)(?::(\d+))?$/i.exec(text)
  if (match === null) {
    throw usage(`--engine: expected host, host:port or user:password@host:port, got ${redacted(url)}`, ENCODED)
  }
  const [, user, password, host = '', port] = match
  return {
    host: { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? defaultPort : Number(port) },
    login: user === undefined ? undefined : { user: decoded(user), password: decoded(password) },
  }
}

/** Of nothing, nothing: `:password@` has no user. */
function decoded(text: string | undefined): string | undefined {
  return text === undefined || text === '' ? undefined : decodeURIComponent(text)
}

/** The parameters that are numbers, of whichever engine; the others are text. */
const NUMBERS = ['drift', 'replicas']

/** What stands behind the question mark. Each one must be asked for, or it is one that nobody obeys. */
export class Parameters {
  readonly #values: URLSearchParams
  readonly #url: string
  readonly #known: string[] = []

  constructor(query: string, url: string) {
    this.#values = new URLSearchParams(query)
    this.#url = url
  }

  /** Those of the names that are there, as options of an engine. */
  take(names: readonly string[]): Record<string, string | number> {
    const taken: Record<string, string | number> = {}
    for (const name of names) {
      this.#known.push(name)
      const value = this.#values.get(name)
      if (value === null) continue
      this.#values.delete(name)
      taken[name] = NUMBERS.includes(name) ? Number(value) : value
    }
    return taken
  }

  done(): void {
    const [name] = this.#values.keys()
    if (name === undefined) return
    throw usage(
      `--engine: unknown parameter '${name}' in ${redacted(this.#url)}${didYouMean(name, this.#known)}`,
      `known here: ${this.#known.join(', ')}`,
    )
  }
}

/** Does the scheme say: with TLS? */
export function isSecure({ scheme }: Address): boolean {
  return /^(rediss|valkeys|etcds|consuls)(\+|$)/.test(scheme)
}

/** With TLS, the files of certificates that are named because the system's own do not do. Without, there are none to name. */
export function certificatesOf(address: Address): Record<string, Buffer> | undefined {
  if (!isSecure(address)) return undefined
  const files = Object.entries(address.parameters.take(['ca', 'cert', 'key']))
  return Object.fromEntries(files.map(([name, file]) => [name, certificate(name, String(file))]))
}

/** Those of the parameters that name a file must name one that can be read. */
export function filesOf(parameters: Readonly<Record<string, string | number>>, names: readonly string[]): void {
  for (const name of names) if (parameters[name] !== undefined) certificate(name, String(parameters[name]))
}

export function certificate(name: string, file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw usage(`--engine: ${name}: cannot be read: ${(error as Error).message}`)
  }
}

/** Our own parameters, and the URL without them for a driver that understands it itself. */
export function splitParameters(
  url: string,
  names: readonly string[],
): { options: Record<string, string | number>; rest: string } {
  const at = url.indexOf('?')
  if (at < 0) return { options: {}, rest: url }
  const parts = url.slice(at + 1).split('&')
  const isOurs = (part: string): boolean => names.includes(part.split('=')[0]!)
  const others = parts.filter((part) => !isOurs(part)).join('&')
  const options = new Parameters(parts.filter(isOurs).join('&'), url).take(names)
  return { options, rest: `${url.slice(0, at)}${others === '' ? '' : `?${others}`}` }
}
