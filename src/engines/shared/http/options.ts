import { objectOrThrow } from '../../../arguments.ts'
import type { Clock } from '../../../clock.ts'
import { shown, type Duration } from '../../../duration.ts'
import type { Random } from '../../../random.ts'
import { requestTimeoutOrThrow, type DefaultTimeout } from '../limits.ts'
import { nodeTransport, type Fetch, type TlsOptions, type Transport } from './transport.ts'

/** The options that all engines with an HTTP API have. */
export interface HttpOptions {
  /** Every key begins with it and a slash. Default `ringfence`. */
  prefix?: string
  /** Certificates, for https. */
  tls?: TlsOptions
  /** At most this long a server may take to answer before the next one is asked. Default: a sixth of the ttl, 250 ms to 2 s. */
  requestTimeout?: Duration
  /** Makes the requests instead of node:http, for a proxy or for tracing. It then needs to know the certificates. */
  fetch?: Fetch
  clock?: Clock
  random?: Random
}

export const HTTP_OPTIONS = ['prefix', 'tls', 'requestTimeout', 'fetch', 'clock', 'random']

/** Checks the servers' URLs. Returns them without a slash at the end. Passwords in them are refused and never shown. */
export function urlsOrThrow(given: unknown, option: string, example: string): readonly string[] {
  const list: unknown[] = Array.isArray(given) ? given : [given]
  if (list.length === 0) throw new TypeError(`${option}: expected at least one URL such as '${example}', got none`)
  const urls = list.map((each, index) =>
    urlOrThrow(each, Array.isArray(given) ? `${option}[${index}]` : option, example),
  )
  for (const [index, url] of urls.entries()) {
    const first = urls.indexOf(url)
    if (first !== index)
      throw new TypeError(
        `${option}[${index}]: expected a server of its own, got the same as ${option}[${first}]; name each once`,
      )
  }
  return urls
}

function urlOrThrow(given: unknown, option: string, example: string): string {
  const url = typeof given === 'string' && URL.canParse(given) ? new URL(given) : undefined
  const wrong =
    url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === '' || url.search !== '' || url.hash !== ''
  if (wrong) throw new TypeError(`${option}: expected a URL such as '${example}', got ${shown(withoutPassword(given))}`)
  if (url.username !== '' || url.password !== '')
    throw new TypeError(
      `${option}: expected a URL without a user or password, got one with them; they are options of their own`,
    )
  return url.href.replace(/\/+$/, '')
}

function withoutPassword(given: unknown): unknown {
  return typeof given === 'string' ? given.replace(/[^/]*@/g, '***@') : given
}

/** Returns the prefix with a slash at the end. */
export function prefixOrThrow(given: unknown = 'ringfence'): string {
  if (typeof given !== 'string') throw new TypeError(`prefix: expected a string, got ${shown(given)}`)
  const path = given.replace(/\/+$/, '')
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (path === '' || /[\u0000-\u001f\u007f]/.test(path))
    throw new RangeError(`prefix: expected a path such as 'ringfence' or 'app/locks', got ${shown(given)}`)
  return `${path}/`
}

/** The error never shows the value, whatever it is. */
export function secretOrThrow(value: unknown, option: string): string | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'string' || value === '')
    throw new TypeError(
      `${option}: expected a string that is not empty, got ${value === '' ? 'an empty one' : typeof value}`,
    )
  // It becomes part of a header.
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (/[\u0000-\u001f\u007f]/.test(value))
    throw new TypeError(`${option}: expected no control characters, got some: is there a line break at its end?`)
  return value
}

const TLS_NAMES = ['ca', 'cert', 'key', 'servername']

export function transportOrThrow(options: { tls?: TlsOptions; fetch?: Fetch }): Transport {
  const { tls, fetch } = options
  if (fetch !== undefined) {
    if (typeof fetch !== 'function') throw new TypeError(`fetch: expected a function, got ${shown(fetch)}`)
    if (tls !== undefined)
      throw new TypeError(
        'tls: expected none beside fetch, which makes the connections itself, got both; set TLS up in that fetch',
      )
    // Its connections belong to the user.
    return { fetch, close: () => undefined }
  }
  if (tls === undefined) return nodeTransport({})
  objectOrThrow(tls, 'tls')
  for (const name of Object.keys(tls)) {
    if (!TLS_NAMES.includes(name)) throw new TypeError(`tls: expected ${TLS_NAMES.join(', ')}, got ${shown(name)}`)
  }
  if ((tls.cert === undefined) !== (tls.key === undefined))
    throw new TypeError(
      `tls: expected cert and key together, got ${tls.cert === undefined ? 'key' : 'cert'} alone; a client certificate needs both`,
    )
  return nodeTransport(tls)
}

/** A request has a sixth of the ttl by default. The least leaves time for elections and busy disks. */
const DEFAULT_TIMEOUT: DefaultTimeout = { divisor: 6, leastMs: 250, mostMs: 2000 }

export function httpTimeoutOrThrow(given: unknown): (ttlMs: number) => number {
  return requestTimeoutOrThrow(given, DEFAULT_TIMEOUT)
}
