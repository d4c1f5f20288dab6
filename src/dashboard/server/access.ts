import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { isIPv4 } from 'node:net'
import { shown } from '../../duration.ts'
import type { DashboardSettings, Role } from './options.ts'
import { Refused } from './problem.ts'

/** Who asks. */
export interface Visitor {
  readonly role: Role
  readonly who: string
  /** How that is known. A browser sends a cookie, or whatever a hook looks at, by itself; a bearer token it does not. */
  readonly by: 'nothing' | 'bearer' | 'cookie' | 'hook'
  readonly remoteAddress: string | undefined
}

/** A working day; then the token is asked for again. */
const LOGIN_MS = 12 * 3_600_000

/** Who may what, and from where. */
export class Access {
  readonly #settings: DashboardSettings
  readonly #tokens: readonly { readonly role: 'read' | 'write'; readonly token: string; readonly digest: Buffer }[]
  /** Cookies know no ports: two dashboards of one host must not log each other out. */
  readonly #cookie: string

  constructor(settings: DashboardSettings) {
    this.#settings = settings
    const tokens = [
      { role: 'read', token: settings.readToken },
      { role: 'write', token: settings.writeToken },
    ] as const
    this.#tokens = tokens.flatMap(({ role, token }) =>
      token === undefined ? [] : [{ role, token, digest: digestOf(token) }],
    )
    const all = this.#tokens.map(({ token }) => token).join(' ')
    this.#cookie = `ringfence-${createHmac('sha256', all).update('cookie').digest('hex').slice(0, 8)}`
  }

  /** There is a login form. */
  get hasTokens(): boolean {
    return this.#tokens.length > 0
  }

  async visitor(request: Request, remoteAddress: string | undefined): Promise<Visitor> {
    const { auth } = this.#settings
    if (auth !== undefined) {
      const { role, name } = verdictOrThrow(await auth(request))
      return { role, who: name, by: 'hook', remoteAddress }
    }
    if (!this.hasTokens) {
      assertLocal(request, remoteAddress)
      return { role: 'read', who: 'anyone', by: 'nothing', remoteAddress }
    }
    const bearer = /^bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '')?.[1]
    const role = bearer === undefined ? this.#cookieRole(request) : this.#tokenRole(bearer)
    if (role === undefined) return { role: 'none', who: 'anyone', by: 'nothing', remoteAddress }
    return { role, who: `${role} token`, by: bearer === undefined ? 'cookie' : 'bearer', remoteAddress }
  }

  /** The cookie for a client that sent this token; undefined if it is none of our tokens. */
  login(token: string, request: Request): string | undefined {
    const role = this.#tokenRole(token)
    if (role === undefined) return undefined
    const untilMs = this.#settings.clock.wallMs() + LOGIN_MS
    return this.#setCookie(`${role}.${untilMs}.${this.#seal(role, untilMs)}`, LOGIN_MS / 1000, request)
  }

  logout(request: Request): string {
    return this.#setCookie('', 0, request)
  }

  /** A page of another site must not be able to make a browser ask for this. */
  assertSameOrigin(request: Request, visitor: Visitor): void {
    const site = request.headers.get('sec-fetch-site')
    const origin = request.headers.get('origin')
    // Without both it is no browser of these days; a bearer token is sent by programs, which send it on purpose.
    if (site === null && origin === null && visitor.by === 'bearer') return
    if (site === null && origin === null) throw new Refused(403, 'expected an Origin header, as browsers send it')
    if (site !== null && site !== 'same-origin')
      throw new Refused(403, `not from here: Sec-Fetch-Site is not same-origin`)
    if (origin !== null && !this.#isOurs(origin, request)) throw new Refused(403, 'not from here: Origin is another')
  }

  #isOurs(origin: string, request: Request): boolean {
    if (this.#settings.origins.length > 0) return this.#settings.origins.includes(origin)
    if (!URL.canParse(origin)) return false
    const { protocol, host } = new URL(origin)
    // Not the scheme: TLS may end at a proxy.
    return /^https?:$/.test(protocol) && host !== '' && host === hostOf(request).toLowerCase()
  }

  /** Compares with all of them, however soon it is clear, and digests alone: how long that takes tells nothing. */
  #tokenRole(given: string): 'read' | 'write' | undefined {
    const digest = digestOf(given)
    let found: 'read' | 'write' | undefined
    for (const known of this.#tokens) if (timingSafeEqual(digest, known.digest)) found = known.role
    return found
  }

  #cookieRole(request: Request): 'read' | 'write' | undefined {
    const cookies = (request.headers.get('cookie') ?? '').split(/; */)
    const value = cookies.find((cookie) => cookie.startsWith(`${this.#cookie}=`))?.slice(this.#cookie.length + 1)
    const [, role, until, seal] = /^(read|write)\.(\d{1,15})\.([\w-]{1,64})$/.exec(value ?? '') ?? []
    if (role === undefined || Number(until) < this.#settings.clock.wallMs()) return undefined
    const ours = this.#seal(role as 'read' | 'write', Number(until))
    if (ours === undefined || !timingSafeEqual(digestOf(seal!), digestOf(ours))) return undefined
    return role as 'read' | 'write'
  }

  /** Made with the token, so that it holds after a restart, and no longer than the token does. */
  #seal(role: 'read' | 'write', untilMs: number): string | undefined {
    const token = this.#tokens.find((known) => known.role === role)?.token
    if (token === undefined) return undefined
    return createHmac('sha256', token).update(`ringfence dashboard ${role} until ${untilMs}`).digest('base64url')
  }

  #setCookie(value: string, seconds: number, request: Request): string {
    const isSecure =
      new URL(request.url).protocol === 'https:' || request.headers.get('origin')?.startsWith('https:') === true
    const attributes = `Path=${this.#settings.path}/; Max-Age=${seconds}; HttpOnly; SameSite=Strict`
    return `${this.#cookie}=${value}; ${attributes}${isSecure ? '; Secure' : ''}`
  }
}

/** A hook that forgot an answer has not said yes. */
function verdictOrThrow(verdict: unknown): { role: Role; name: string } {
  const { role, name = 'hook' } = (typeof verdict === 'object' && verdict !== null ? verdict : { role: verdict }) as {
    role: unknown
    name?: unknown
  }
  if ((role === 'none' || role === 'read' || role === 'write') && typeof name === 'string') return { role, name }
  throw new TypeError(`auth: expected 'none', 'read' or 'write', or one of them with a name, got ${shown(role)}`)
}

/**
 * Open to everyone means to everyone on this machine. The address keeps other machines out. The Host header keeps other
 * sites out: one of them may let its own name point to 127.0.0.1, and its page then reads from here as from itself.
 */
function assertLocal(request: Request, remoteAddress: string | undefined): void {
  if (remoteAddress === undefined || !isLoopback(remoteAddress)) {
    throw new Refused(403, 'without tokens or an auth hook this dashboard answers to its own machine alone')
  }
  if (!isLoopbackName(hostOf(request))) {
    throw new Refused(421, 'without tokens or an auth hook this dashboard is at localhost or 127.0.0.1 alone')
  }
}

function isLoopback(address: string): boolean {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '')
  return plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'))
}

function isLoopbackName(host: string): boolean {
  const name = host.replace(/:\d*$/, '').toLowerCase()
  return name === 'localhost' || name === '[::1]' || isLoopback(name)
}

function hostOf(request: Request): string {
  return request.headers.get('host') ?? new URL(request.url).host
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
