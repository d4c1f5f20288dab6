import { readFileSync } from 'node:fs'
import { didYouMean } from '../command-line.ts'
import { usage } from '../exit-codes.ts'
import { redacted } from '../settings.ts'

export interface Host {
  readonly host: string
  readonly port: number
}

/** An engine's URL in parts. Not by `URL`, which knows nothing of several hosts. */
export interface Address {
  readonly scheme: string
  readonly user: string | undefined
  readonly password: string | undefined
  readonly hosts: readonly Host[]
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
  const hosts = /^(?!file:)[a-z0-9+]+:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url)?.[1] ?? ''
  for (const host of hosts.split(',')) {
    const port = /:(\d+)$/.exec(host)?.[1]
    if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535))
      throw usage(`--engine: expected a port from 1 to 65535, got ${port} in ${redacted(url)}`)
  }
}

export function parseAddress(url: string, defaultPort: number): Address {
  const match = /^([a-z][a-z0-9+]*):\/\/(?:([^/?#]*)@)?([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i.exec(url)
  if (match === null) throw usage(`--engine: expected a URL such as redis://host:6379, got ${redacted(url)}`)
  const [, scheme = '', login, hosts = '', path = '', query = ''] = match
  const [user, ...password] = (login ?? '').split(':')
  // What stands before the last @ is the login: a comma in it separates hosts.
  if (user!.includes(',') || /@[^@]*,/.test(login ?? '')) {
    throw usage(
      `--engine: expected one login for all hosts, before the first, got ${redacted(url)}`,
      `${scheme}://USER:PASSWORD@a,b,c; a comma or an @ in a password is written as %2C or %40`,
    )
  }
  return {
    scheme: scheme.toLowerCase(),
    user: user === '' ? undefined : decodeURIComponent(user!),
    password: password.length === 0 ? undefined : decodeURIComponent(password.join(':')),
    hosts: hosts.split(',').map((host) => parseHost(host, defaultPort, url)),
    path: decodeURIComponent(path),
    parameters: new Parameters(query, url),
  }
}

function parseHost(text: string, defaultPort: number, url: string): Host {
  const match = /^(\[[0-9a-f:.]+\]|[^:]+)(?::(\d+))?$/i.exec(text)
  if (match === null) throw usage(`--engine: expected host or host:port, got '${text}' in ${redacted(url)}`)
  const [, host = '', port] = match
  return { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? defaultPort : Number(port) }
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
  return ['rediss', 'valkeys', 'etcds', 'consuls'].includes(scheme)
}

/** With TLS, the files of certificates that are named because the system's own don't do. Without, there are none to name. */
export function certificatesOf(address: Address): Record<string, Buffer> | undefined {
  if (!isSecure(address)) return undefined
  const files = Object.entries(address.parameters.take(['ca', 'cert', 'key']))
  return Object.fromEntries(files.map(([name, file]) => [name, certificate(name, String(file))]))
}

function certificate(name: string, file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw usage(`--engine: ${name}: can't be read: ${(error as Error).message}`)
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
