import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import { randomOrThrow, type Random } from '../../random.ts'
import type { RunStore } from '../../runs.ts'
import type { AuditEntry } from './audit.ts'
import type { JournalSettings } from './journal.ts'

/** What a user of the dashboard may do: nothing, look, or also release and extend leases. */
export type Role = 'none' | 'read' | 'write'

/** A role, and who has it for the audit. */
export type Verdict = Role | { readonly role: Role; readonly name: string }

/** Options of `dashboard`: where it is mounted, and who may see and do what. */
export interface DashboardOptions {
  /** Where it is mounted: the path that its requests begin with. Default `/`. */
  path?: string
  /** The token for users who may look, given as `Authorization: Bearer` or in the login form. At least 16 characters. */
  readToken?: string
  /** The token for users who may also release and extend leases. */
  writeToken?: string
  /** Your own function that gives each request its role, instead of tokens. If it throws, `fetch` rejects with that error. */
  auth?: (request: Request) => Verdict | Promise<Verdict>
  /** Origins of the page as browsers see it, where a proxy hides it: `https://ops.example.org`. Default: that of the Host header. */
  origins?: readonly string[]
  /** Receives each forced release or extension, each that was refused, and each failed login. */
  onAudit?: (entry: AuditEntry) => void
  /** How soon after a look through all leases the next one begins, while someone has the page open. Default 1 s. */
  every?: Duration
  /** The same while nobody looks, for the history alone. Default 10 s; `never`: history begins with the first viewer. */
  whenIdle?: Duration | 'never'
  /** How many pages may be open at once. Default 500. */
  streams?: number
  /** Where `once` records the runs of jobs: a guard of PostgreSQL, MariaDB, MongoDB or Redis. The page shows them. Default: none. */
  runs?: RunStore
  /**
   * A file that keeps the history, so that it outlives a restart. It is made for this user alone. `maxBytes`: of it and of the file
   * beside it (FILE.1) together, 8 MB by default. `maxAge`: what is older is not shown, 30 days by default. Default: none, so that
   * the history is in the memory of this process.
   */
  history?: string | { file: string; maxBytes?: number; maxAge?: Duration }
  /** Takes secrets out of messages of the engine, the store and jobs before they are shown. Logins in URLs are taken out in any case. */
  redact?: (text: string) => string
  /** For tests: another clock. Default: the system's. */
  clock?: Clock
  /** For tests: another source of random numbers. Default: the system's. */
  random?: Random
}

export interface DashboardSettings {
  /** Without a slash at its end: '' or '/locks'. */
  readonly path: string
  readonly readToken: string | undefined
  readonly writeToken: string | undefined
  readonly auth: DashboardOptions['auth']
  readonly origins: readonly string[]
  readonly onAudit: (entry: AuditEntry) => void
  readonly everyMs: number
  readonly idleMs: number
  readonly streams: number
  readonly runs: RunStore | undefined
  readonly history: JournalSettings | undefined
  readonly redact: (text: string) => string
  readonly clock: Clock
  readonly random: Random
}

const NAMES = [
  'path',
  'readToken',
  'writeToken',
  'auth',
  'origins',
  'onAudit',
  'every',
  'whenIdle',
  'streams',
  'runs',
  'history',
  'redact',
  'clock',
  'random',
]
/** 16 characters of a random token cannot be guessed over a network, nor from a cookie that was made with it. */
const LEAST_TOKEN_LENGTH = 16
const MOST_TOKEN_LENGTH = 512

export function dashboardSettings(options: DashboardOptions): DashboardSettings {
  optionsOrThrow(options, NAMES)
  const { readToken, writeToken, auth, origins = [], whenIdle = '10s', streams = 500, runs } = options
  tokenOrThrow(readToken, 'readToken')
  tokenOrThrow(writeToken, 'writeToken')
  if (readToken !== undefined && readToken === writeToken)
    throw new TypeError('readToken: expected another token than the one for writing, got the same')
  for (const name of ['auth', 'onAudit', 'redact'] as const) {
    if (options[name] !== undefined && typeof options[name] !== 'function')
      throw new TypeError(`${name}: expected a function, got ${shown(options[name])}`)
  }
  if (auth !== undefined && (readToken ?? writeToken) !== undefined)
    throw new TypeError('auth: expected either a function or tokens, got both')
  if (!Array.isArray(origins)) throw new TypeError(`origins: expected an array, got ${shown(origins)}`)
  if (!Number.isInteger(streams) || streams < 1)
    throw new RangeError(`streams: expected a whole number from 1 on, got ${shown(streams)}`)
  if (runs !== undefined && typeof runs?.runs !== 'function')
    throw new TypeError(
      `runs: expected a guard such as postgresGuard(pool), or an object with runs, got ${shown(runs)}`,
    )
  const { redact = (text: string) => text } = options
  return {
    path: pathOrThrow(options.path ?? '/'),
    readToken,
    writeToken,
    auth,
    origins: origins.map((origin: unknown, index) => originOrThrow(origin, `origins[${index}]`)),
    onAudit: options.onAudit ?? (() => undefined),
    everyMs: durationMs(options.every ?? '1s', 'every', { minMs: 100, maxMs: 3_600_000 }),
    idleMs: whenIdle === 'never' ? Infinity : durationMs(whenIdle, 'whenIdle', { minMs: 1000, maxMs: 86_400_000 }),
    streams,
    runs,
    history: options.history === undefined ? undefined : journalSettings(options.history),
    redact: (text) => redact(text.replace(/\/\/[^/\s@]*@/g, '//***@')),
    clock: clockOrThrow(options.clock),
    random: randomOrThrow(options.random),
  }
}

const DAY_MS = 86_400_000
const LEAST_BYTES = 64 * 1024
const MOST_BYTES = 1024 ** 3

function journalSettings(history: NonNullable<DashboardOptions['history']>): JournalSettings {
  const {
    file,
    maxBytes = 8 * 1024 ** 2,
    maxAge = 30 * DAY_MS,
  } = typeof history === 'string' ? { file: history } : history
  if (typeof history === 'object') optionsOrThrow(history, ['file', 'maxBytes', 'maxAge'])
  if (typeof file !== 'string' || file === '')
    throw new TypeError(`history: expected the path of a file, got ${shown(file)}`)
  if (!Number.isInteger(maxBytes) || maxBytes < LEAST_BYTES || maxBytes > MOST_BYTES)
    throw new RangeError(
      `history.maxBytes: expected a whole number from ${LEAST_BYTES} to ${MOST_BYTES}, got ${shown(maxBytes)}`,
    )
  return { file, maxBytes, maxAgeMs: durationMs(maxAge, 'history.maxAge', { minMs: 60_000, maxMs: 3650 * DAY_MS }) }
}

function tokenOrThrow(token: unknown, name: string): void {
  if (token === undefined) return
  if (typeof token !== 'string') throw new TypeError(`${name}: expected a string, got ${shown(typeof token)}`)
  // The token itself is never in a message.
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new TypeError(
      `${name}: expected printable ASCII characters without spaces, got others; \`openssl rand -hex 32\` makes one`,
    )
  if (token.length < LEAST_TOKEN_LENGTH || token.length > MOST_TOKEN_LENGTH) {
    throw new RangeError(
      `${name}: expected ${LEAST_TOKEN_LENGTH} to ${MOST_TOKEN_LENGTH} characters, got ${token.length}; \`openssl rand -hex 32\` makes one`,
    )
  }
}

function pathOrThrow(path: unknown): string {
  if (typeof path !== 'string' || !/^(\/[\w.~-]+)*\/?$/.test(path) || /\/\.\.?(\/|$)/.test(path))
    throw new TypeError(`path: expected a path such as '/locks', got ${shown(path)}`)
  return path.replace(/\/$/, '')
}

function originOrThrow(origin: unknown, name: string): string {
  const url = typeof origin === 'string' && URL.canParse(origin) ? new URL(origin) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.href !== `${url.origin}/`)
    throw new TypeError(`${name}: expected an origin such as 'https://ops.example.org', got ${shown(origin)}`)
  return url.origin
}
