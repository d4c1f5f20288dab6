import { readFileSync } from 'node:fs'
import type { LockEvent } from '../../events.ts'
import { Access, type Visitor } from './access.ts'
import { Audit } from './audit.ts'
import { readBody } from './body.ts'
import { Engines, type NamedEngine, type WatchedEngine } from './engines.ts'
import { Files } from './files.ts'
import { nameOrRefuse, whoOf } from './forcing.ts'
import { metricsText } from './metrics.ts'
import type { DashboardSettings } from './options.ts'
import { packageFile } from './package-file.ts'
import { COMMON, json, Refused } from './problem.ts'
import { RunReader } from './runs.ts'

/** A name of 1 kB, each byte as %XX, and the rest. */
const MOST_URL_LENGTH = 4096

interface Visit {
  readonly request: Request
  readonly url: URL
  readonly visitor: Visitor
}

interface Route {
  readonly methods: readonly string[]
  answer(visit: Visit): Promise<Response>
  /** Answered to everybody, so that nobody is asked who they are. */
  readonly isOpen?: true
}

/** Handles the requests to one dashboard. */
export class Handler {
  readonly engines: Engines
  readonly #settings: DashboardSettings
  readonly #access: Access
  readonly #audit: Audit
  readonly #runReader: RunReader | undefined
  readonly #files = new Files()
  readonly #server: string
  readonly #version = packageVersion()
  readonly #routes: Readonly<Record<string, Route>> = {
    '': { methods: ['GET', 'HEAD'], answer: (visit) => this.#page(visit) },
    events: { methods: ['GET'], answer: (visit) => this.#events(visit) },
    history: { methods: ['GET'], answer: (visit) => this.#history(visit) },
    past: { methods: ['GET'], answer: (visit) => this.#past(visit) },
    runs: { methods: ['GET'], answer: (visit) => this.#runs(visit) },
    healthz: { methods: ['GET', 'HEAD'], answer: () => this.#healthz(), isOpen: true },
    'healthz/engines': { methods: ['GET', 'HEAD'], answer: (visit) => this.#enginesHealth(visit) },
    metrics: { methods: ['GET'], answer: (visit) => this.#metrics(visit) },
    release: { methods: ['POST'], answer: (visit) => this.#force('release', visit) },
    extend: { methods: ['POST'], answer: (visit) => this.#force('extend', visit) },
    login: { methods: ['POST'], answer: (visit) => this.#login(visit) },
    logout: { methods: ['POST'], answer: (visit) => this.#logout(visit) },
  }

  constructor(named: readonly NamedEngine[], settings: DashboardSettings) {
    const { clock, redact, random, onAudit, runs } = settings
    this.#settings = settings
    this.#access = new Access(settings)
    this.#audit = new Audit(clock, onAudit)
    this.#server = random.id()
    this.engines = new Engines(named, settings, this.#audit)
    this.#runReader = runs === undefined ? undefined : new RunReader(runs, { clock, redact })
  }

  async fetch(request: Request, remoteAddress: string | undefined): Promise<Response> {
    try {
      return await this.#answer(request, remoteAddress)
    } catch (error) {
      if (error instanceof Refused) return error.response()
      throw error
    }
  }

  heard(key: string, event: LockEvent): void {
    this.engines.find(key)?.pages.board.heard(event)
  }

  async #answer(request: Request, remoteAddress: string | undefined): Promise<Response> {
    if (request.url.length > MOST_URL_LENGTH) throw new Refused(414, `expected at most ${MOST_URL_LENGTH} characters`)
    const url = new URL(request.url)
    const { path } = this.#settings
    if (url.pathname === path) return redirect(`${path}/`, 308)
    if (!url.pathname.startsWith(`${path}/`)) throw notFound()
    const name = url.pathname.slice(path.length + 1)
    const route = Object.hasOwn(this.#routes, name) ? this.#routes[name]! : this.#fileRoute(name)
    if (!route.methods.includes(request.method))
      throw new Refused(405, `expected ${route.methods.join(' or ')}`, { allow: route.methods.join(', ') })
    const unasked: Visitor = { role: 'none', who: 'anyone', by: 'nothing', remoteAddress }
    const visitor = route.isOpen === true ? unasked : await this.#access.visitor(request, remoteAddress)
    return route.answer({ request, url, visitor })
  }

  /** The page's code and look are no secret, and the login page needs them. */
  #fileRoute(name: string): Route {
    const file = this.#files.find(name)
    if (file === undefined) throw notFound()
    return { methods: ['GET', 'HEAD'], answer: ({ request }) => this.#files.answer(file, request) }
  }

  async #page({ request, url, visitor }: Visit): Promise<Response> {
    const isKnown = this.engines.find(url.searchParams.get('engine')) !== undefined
    if (visitor.role !== 'none') return isKnown ? this.#files.answer('index.html', request) : redirect('./', 303)
    if (this.#access.hasTokens) return this.#files.answer('login.html', request, 401)
    throw new Refused(403, 'you may not look at this')
  }

  async #events({ request, url, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    const watched = this.#meant(url)
    const { name, identity } = watched.engine
    const body = this.engines.open(
      watched,
      {
        server: this.#server,
        engine: { key: watched.key, name, identity: this.#settings.redact(identity) },
        may: visitor.role === 'write' ? 'write' : 'read',
        loggedIn: visitor.by === 'cookie',
        version: this.#version,
        runs: this.#runReader !== undefined,
        limits: watched.forcing.limits,
      },
      request,
    )
    // Nginx would collect events until it has a page full of them.
    return new Response(body, {
      headers: { ...COMMON, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' },
    })
  }

  async #history({ request, url, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    return json(this.#meant(url).pages.history(nameOrRefuse(url.searchParams.get('resource'))))
  }

  async #past({ request, url, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    return json(await this.#meant(url).pages.past(url.searchParams.get('words') ?? ''))
  }

  async #runs({ request, url, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    if (this.#runReader === undefined) throw new Refused(404, 'this dashboard was given no store of runs')
    return json(await this.#runReader.runs(nameOrRefuse(url.searchParams.get('resource'))))
  }

  /** What answers is alive. An engine that is away is no reason to end this process, nor to keep people from its page. */
  async #healthz(): Promise<Response> {
    if (this.engines.isClosed) throw new Refused(503, 'the dashboard is closed')
    return json({ status: 'ok' })
  }

  async #enginesHealth({ request, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    this.engines.ask()
    const health = this.engines.health()
    return json(health, health.status === 'ok' ? 200 : 503)
  }

  async #metrics({ request, visitor }: Visit): Promise<Response> {
    this.#assertReads(request, visitor)
    this.engines.ask()
    return new Response(metricsText(this.engines), {
      headers: { ...COMMON, 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    })
  }

  async #force(action: 'release' | 'extend', { request, url, visitor }: Visit): Promise<Response> {
    try {
      if (visitor.role === 'none') throw this.#notLoggedIn()
      if (visitor.role !== 'write') throw new Refused(403, 'that takes the write role')
      this.#access.assertSameOrigin(request, visitor)
      // A form of another site can be sent with few content types, and this is none of them.
      assertType(request, 'application/json')
    } catch (error) {
      const why = (error as Error).message
      this.#audit.add({ action, outcome: 'refused', ...whoOf(visitor), why })
      throw error
    }
    const { forcing } = this.#meant(url)
    return json(await forcing[action](parsed(await readBody(request, this.#settings.clock)), visitor))
  }

  async #login({ request, visitor }: Visit): Promise<Response> {
    if (!this.#access.hasTokens) throw notFound()
    this.#access.assertSameOrigin(request, visitor)
    assertType(request, 'application/x-www-form-urlencoded')
    const form = new URLSearchParams(await readBody(request, this.#settings.clock))
    const cookie = this.#access.login(form.get('token') ?? '', request)
    if (cookie !== undefined) return redirect('./', 303, { 'set-cookie': cookie })
    this.#audit.add({ action: 'login', outcome: 'refused', ...whoOf(visitor), why: 'it is none of the tokens' })
    return redirect('./#failed', 303)
  }

  async #logout({ request, visitor }: Visit): Promise<Response> {
    if (!this.#access.hasTokens) throw notFound()
    this.#access.assertSameOrigin(request, visitor)
    return redirect('./', 303, { 'set-cookie': this.#access.logout(request) })
  }

  /** Another site cannot read our answers, but it could keep all our streams busy. */
  #assertReads(request: Request, visitor: Visitor): void {
    if (visitor.role === 'none') throw this.#notLoggedIn()
    const site = request.headers.get('sec-fetch-site')
    if (site !== null && site !== 'same-origin' && site !== 'none') throw new Refused(403, 'not from here')
  }

  #meant(url: URL): WatchedEngine {
    const watched = this.engines.find(url.searchParams.get('engine'))
    if (watched !== undefined) return watched
    const known = this.engines.all.map(({ key }) => key).join(', ')
    throw new Refused(404, `engine: expected one of ${known}`)
  }

  #notLoggedIn(): Refused {
    if (!this.#access.hasTokens) return new Refused(403, 'you may not do this')
    return new Refused(401, 'log in, or send a token', { 'www-authenticate': 'Bearer realm="ringfence"' })
  }
}

function notFound(): Refused {
  return new Refused(404, 'there is nothing here')
}

function assertType(request: Request, type: string): void {
  const [given = ''] = (request.headers.get('content-type') ?? '').split(';')
  if (given.trimEnd().toLowerCase() !== type) throw new Refused(415, `expected ${type}`)
}

function redirect(location: string, status: number, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(null, { status, headers: { ...COMMON, ...headers, location } })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Refused(400, 'expected JSON')
  }
}

function packageVersion(): string {
  const manifest = readFileSync(packageFile('package.json'), 'utf8')
  return (JSON.parse(manifest) as { version: string }).version
}
