import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { ForeignTokenError, StaleTokenError } from '../errors.ts'
import { engineOrThrow, fencedOrThrow, isEngine, MAX_TOKEN, type Fenced, type Guard } from './guard.ts'
import { hasMethods, property } from './rows.ts'

export interface HttpGuardOptions<Request> {
  /** What a request is about, as the server sees it: a client must not choose which fence is checked. */
  resource: (request: Request) => string | readonly string[]
  /** The engine that all clients use. Where it is given, the header may leave it out. */
  engine?: string
}

/** The answer to a request that was refused, as of RFC 9457. Tokens are text: JSON has no numbers of 64 bits. */
export interface Problem {
  readonly type: string
  readonly title: string
  readonly status: 400 | 412 | 428
  readonly detail: string
  readonly resource?: string
  readonly token?: string
  readonly seen?: string
}

const HEADER = 'Fencing-Token'
const CONTENT_TYPE = 'application/problem+json'

/** What a client sends along: `Fencing-Token: 1767225600000000;engine=redis%3A`. */
export function fencingHeaders(lease: Fenced): Record<string, string> {
  const { token, engine } = fencedOrThrow(lease)
  return { [HEADER]: `${token};engine=${encodeURIComponent(engine)}` }
}

/** A `Request` of fetch, of whatever server. */
export interface FetchRequest {
  readonly headers: { get(name: string): string | null }
}

/**
 * Wraps a fetch-style handler: a request enters the guard before it is handled, and one that is stale is answered with 412.
 * Time passes between that and the handler's write, so write with the guard too, by the lease that the handler is given.
 */
export function fencedHandler<Request extends FetchRequest, Rest extends unknown[], Answer>(
  guard: Guard,
  options: HttpGuardOptions<Request>,
  handler: (request: Request, lease: Fenced, ...rest: Rest) => Answer | Promise<Answer>,
): (request: Request, ...rest: Rest) => Promise<Answer | Response> {
  const gate = new Gate(guard, options)
  if (typeof handler !== 'function') throw new TypeError(`handler: expected a function, got ${shown(handler)}`)
  return async (request, ...rest) => {
    try {
      const lease = await gate.enter(request, request.headers.get(HEADER))
      return await handler(request, lease, ...rest)
    } catch (error) {
      const problem = problemOf(error)
      if (problem === undefined) throw error
      const headers = { 'content-type': CONTENT_TYPE }
      return new Response(JSON.stringify(problem), { status: problem.status, headers })
    }
  }
}

/** A request of node:http, Express or Fastify. */
export interface NodeRequest {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
}

export type Next = (error?: unknown) => void

/**
 * The same as a middleware: of Express and Connect by `use`, of Fastify as a hook (`addHook('preHandler', …)`), of node:http
 * by calling it. The lease for the handler's own write is `fencedOf(request)`.
 */
export function fencedMiddleware<Request extends NodeRequest>(
  guard: Guard,
  options: HttpGuardOptions<Request>,
): (request: Request, response: object, next: Next) => void {
  const gate = new Gate(guard, options)
  const pass = async (request: Request, response: object, next: Next): Promise<void> => {
    const header = request.headers[HEADER.toLowerCase()]
    try {
      leases.set(request, await gate.enter(request, typeof header === 'object' ? header.join(', ') : (header ?? null)))
    } catch (error) {
      return answerOrPass(error, response, next)
    }
    next()
  }
  return (request, response, next) => void pass(request, response, next)
}

const leases = new WeakMap<object, Fenced>()

/** The lease of a request that has come through `fencedMiddleware`. */
export function fencedOf(request: object): Fenced {
  const lease = leases.get(request)
  if (lease === undefined) throw new TypeError('request: expected one that has come through fencedMiddleware')
  return lease
}

/** The error handler for Express: answers the guard's refusals of the handler's own write, passes on everything else. */
export function fencedErrors(): (error: unknown, request: object, response: object, next: Next) => void {
  // Express knows it by its four parameters.
  return (error, _request, response, next) => answerOrPass(error, response, next)
}

/** What to answer to an error of a guard, for any other framework; undefined for every other error. */
export function problemOf(error: unknown): Problem | undefined {
  if (error instanceof BadRequest) return error.problem
  if (error instanceof StaleTokenError) {
    return {
      type: 'urn:ringfence:stale-token',
      title: 'Stale fencing token',
      status: 412,
      detail: error.message,
      ...(error.resources[0] === undefined ? {} : { resource: error.resources[0] }),
      token: String(error.token),
      seen: String(error.seen),
    }
  }
  if (error instanceof ForeignTokenError) {
    return {
      type: 'urn:ringfence:foreign-token',
      title: 'Fencing token of another engine',
      status: 412,
      detail: error.message,
      ...(error.resources[0] === undefined ? {} : { resource: error.resources[0] }),
      token: String(error.token),
    }
  }
  return undefined
}

class BadRequest extends Error {
  readonly problem: Problem

  constructor(problem: Problem) {
    super(problem.detail)
    this.problem = problem
  }
}

/** Reads the header, and enters the guard. */
class Gate<Request> {
  readonly #guard: Guard
  readonly #options: HttpGuardOptions<Request>

  constructor(guard: Guard, options: HttpGuardOptions<Request>) {
    if (!hasMethods(guard, 'enter')) throw new TypeError(`guard: expected a guard, got ${shown(guard)}`)
    optionsOrThrow(options, ['resource', 'engine'])
    const { resource, engine } = options
    if (typeof resource !== 'function') throw new TypeError(`resource: expected a function, got ${shown(resource)}`)
    if (engine !== undefined) engineOrThrow(engine, 'engine')
    this.#guard = guard
    this.#options = options
  }

  async enter(request: Request, header: string | null): Promise<Fenced> {
    const given = this.#options.resource(request)
    const { token, engine } = this.#read(header)
    const lease = { resources: typeof given === 'string' ? [given] : given, token, engine }
    await this.#guard.enter(lease)
    return lease
  }

  #read(header: string | null): { token: bigint; engine: string } {
    if (header === null) {
      throw new BadRequest({
        type: 'urn:ringfence:token-required',
        title: 'Fencing token required',
        status: 428,
        detail: `expected the header ${HEADER} with the token of a lease`,
      })
    }
    const [, token, encoded] = /^(\d{1,19})(?:;\s*engine=([^\s;,]+))?$/.exec(header.trim()) ?? []
    const engine = encoded === undefined ? this.#options.engine : decoded(encoded)
    if (token === undefined || !isEngine(engine) || BigInt(token) > MAX_TOKEN) throw malformed(header)
    return { token: BigInt(token), engine }
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

function malformed(header: string): BadRequest {
  return new BadRequest({
    type: 'urn:ringfence:malformed-token',
    title: 'Malformed fencing token',
    status: 400,
    detail: `expected the header ${HEADER} as '<token>;engine=<identity>', got ${shown(header)}`,
  })
}

function answerOrPass(error: unknown, response: object, next: Next): void {
  const problem = problemOf(error)
  // An answer that has begun can't become another one.
  if (problem === undefined || property(response, 'headersSent') === true) next(error)
  else answer(response, problem)
}

interface Reply {
  code(status: number): Reply
  header(name: string, value: string): Reply
  send(body: string): unknown
}

interface Outgoing {
  statusCode: number
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
}

function answer(response: object, problem: Problem): void {
  const body = JSON.stringify(problem)
  // Fastify's reply; an Express response has send() as well, but no code().
  if (hasMethods(response, 'code', 'header', 'send')) {
    ;(response as Reply).code(problem.status).header('content-type', CONTENT_TYPE).send(body)
    return
  }
  const outgoing = response as Outgoing
  outgoing.statusCode = problem.status
  outgoing.setHeader('content-type', CONTENT_TYPE)
  outgoing.end(body)
}
