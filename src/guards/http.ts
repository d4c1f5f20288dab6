import { given, optionsOrThrow } from '../arguments.ts'
import { clockOrThrow, type Clock } from '../clock.ts'
import { shown } from '../duration.ts'
import { hasMethods, property } from '../engines/shared/shape.ts'
import { ForeignTokenError, StaleTokenError } from '../errors.ts'
import { engineOrThrow, fencedOrThrow, isEngine, MAX_TOKEN, type Fenced, type Guard } from './guard.ts'

/** Options of `fencedHandler` and `fencedMiddleware`. */
export interface HttpGuardOptions<Request> {
  /** Returns the resource of a request, as the server sees it: a client must not choose which fence is checked. */
  resource: (request: Request) => string | readonly string[]
  /** The engine that all clients use. Where it is given, the header may leave it out, and another one is refused. */
  engine?: string
  /**
   * The highest token to accept: one that is too high would shut out every later holder of the resource. Default: the time in
   * microseconds plus a day. No engine of ringfence counts faster than that.
   */
  maxToken?: bigint
  clock?: Clock
}

/** The answer to a refused request, as in RFC 9457. Tokens are text: JSON has no numbers of 64 bits. */
export interface HttpProblem {
  readonly type: string
  readonly title: string
  readonly status: 400 | 412 | 428
  readonly detail: string
  readonly resource?: string
  readonly token?: string
  readonly seen?: string
}

const HEADER = 'Fencing-Token'
const DAY_MS = 86_400_000
const CONTENT_TYPE = 'application/problem+json'

/** Returns the header that a client sends: `Fencing-Token: 1767225600000000;engine=redis%3A`. */
export function fencingHeaders(lease: Fenced): Record<string, string> {
  const { token, engine } = fencedOrThrow(lease)
  return { [HEADER]: `${token};engine=${encodeURIComponent(engine)}` }
}

/** A `Request` of fetch, in any server. */
export interface FetchRequest {
  readonly headers: { get(name: string): string | null }
}

/**
 * Wraps a fetch-style handler: a request enters the guard before it is handled, and a stale one is answered with 412. Time
 * passes between that and the handler's write, so use the guard for that write too, with the lease that the handler gets.
 */
export function fencedHandler<Request extends FetchRequest, Rest extends unknown[], Answer>(
  guard: Guard,
  options: HttpGuardOptions<Request>,
  handler: (request: Request, lease: Fenced, ...rest: Rest) => Answer | Promise<Answer>,
): (request: Request, ...rest: Rest) => Promise<Answer | Response> {
  const fence = new RequestFence(guard, options)
  if (typeof handler !== 'function') throw new TypeError(`handler: expected a function, got ${shown(handler)}`)
  return async (request, ...rest) => {
    try {
      const lease = await fence.enter(request, request.headers.get(HEADER))
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

/** The callback of a middleware: called without an error, it passes the request on. */
export type Next = (error?: unknown) => void

/**
 * The same as a middleware: for Express and Connect with `use`, for Fastify as a hook (`addHook('preHandler', …)`), for node:http
 * by calling it. The lease for the handler's own write is `fencedOf(request)`.
 */
export function fencedMiddleware<Request extends NodeRequest>(
  guard: Guard,
  options: HttpGuardOptions<Request>,
): (request: Request, response: object, next: Next) => void {
  const fence = new RequestFence(guard, options)
  const pass = async (request: Request, response: object, next: Next): Promise<void> => {
    const header = request.headers[HEADER.toLowerCase()]
    try {
      leases.set(request, await fence.enter(request, typeof header === 'object' ? header.join(', ') : (header ?? null)))
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

/** The error handler for Express: answers when the guard refuses the handler's own write, and passes on every other error. */
export function fencedErrors(): (error: unknown, request: object, response: object, next: Next) => void {
  // Express recognises an error handler by its four parameters.
  return (error, _request, response, next) => answerOrPass(error, response, next)
}

/** Returns the answer to an error of a guard, for any other framework; undefined for every other error. */
export function problemOf(error: unknown): HttpProblem | undefined {
  if (error instanceof BadRequestError) return error.problem
  const isStale = error instanceof StaleTokenError
  if (!isStale && !(error instanceof ForeignTokenError)) return undefined
  return {
    type: `urn:ringfence:${isStale ? 'stale' : 'foreign'}-token`,
    title: isStale ? 'Stale fencing token' : 'Fencing token of another engine',
    status: 412,
    detail: error.message,
    ...given({ resource: error.resources[0] }),
    token: String(error.token),
    ...(isStale ? { seen: String(error.seen) } : {}),
  }
}

class BadRequestError extends Error {
  readonly problem: HttpProblem

  constructor(problem: HttpProblem) {
    super(problem.detail)
    this.problem = problem
  }
}

/** Reads the header of a request, and enters the guard. */
class RequestFence<Request> {
  readonly #guard: Guard
  readonly #options: HttpGuardOptions<Request>
  readonly #clock: Clock

  constructor(guard: Guard, options: HttpGuardOptions<Request>) {
    if (!hasMethods(guard, 'enter')) throw new TypeError(`guard: expected a guard, got ${shown(guard)}`)
    optionsOrThrow(options, ['resource', 'engine', 'maxToken', 'clock'])
    const { resource, engine, maxToken } = options
    if (typeof resource !== 'function') throw new TypeError(`resource: expected a function, got ${shown(resource)}`)
    if (engine !== undefined) engineOrThrow(engine, 'engine')
    if (maxToken !== undefined && (typeof maxToken !== 'bigint' || maxToken < 0n || maxToken > MAX_TOKEN)) {
      throw new TypeError(`maxToken: expected a bigint from 0 to ${MAX_TOKEN}, got ${shown(maxToken)}`)
    }
    this.#guard = guard
    this.#options = options
    this.#clock = clockOrThrow(options.clock)
  }

  async enter(request: Request, header: string | null): Promise<Fenced> {
    const given = this.#options.resource(request)
    const { token, engine } = this.#read(header)
    const lease = { resources: typeof given === 'string' ? [given] : given, token, engine }
    const expected = this.#options.engine ?? engine
    // Checked here and not by the guard: the first request for a resource would bind it to any engine that it names.
    if (engine !== expected) throw new ForeignTokenError(lease.resources, token, engine, expected)
    await this.#guard.enter(lease)
    return lease
  }

  #read(header: string | null): { token: bigint; engine: string } {
    if (header === null) {
      throw new BadRequestError({
        type: 'urn:ringfence:token-required',
        title: 'Fencing token required',
        status: 428,
        detail: `expected the header ${HEADER} with the token of a lease`,
      })
    }
    const [, token, encoded] = /^(\d{1,19})(?:;\s*engine=([^\s;,]+))?$/.exec(header.trim()) ?? []
    const engine = encoded === undefined ? this.#options.engine : decoded(encoded)
    if (token === undefined || !isEngine(engine) || BigInt(token) > MAX_TOKEN) throw malformed(header)
    const highest = this.#options.maxToken ?? BigInt(this.#clock.wallMs() + DAY_MS) * 1000n
    if (BigInt(token) > highest) throw implausible(token, highest)
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

function malformed(header: string): BadRequestError {
  return new BadRequestError({
    type: 'urn:ringfence:malformed-token',
    title: 'Malformed fencing token',
    status: 400,
    detail: `expected the header ${HEADER} as '<token>;engine=<identity>', got ${shown(header)}`,
  })
}

function implausible(token: string, highest: bigint): BadRequestError {
  return new BadRequestError({
    type: 'urn:ringfence:implausible-token',
    title: 'Implausible fencing token',
    status: 400,
    detail: `expected a token of at most ${highest}, got ${token}; a server whose engine counts higher sets maxToken`,
    token,
  })
}

function answerOrPass(error: unknown, response: object, next: Next): void {
  const problem = problemOf(error)
  // An answer that has begun cannot be replaced.
  if (problem === undefined || property(response, 'headersSent') === true) next(error)
  else answer(response, problem)
}

interface FastifyReply {
  code(status: number): FastifyReply
  header(name: string, value: string): FastifyReply
  send(body: string): unknown
}

interface Outgoing {
  statusCode: number
  setHeader(name: string, value: string): unknown
  end(body: string): unknown
}

function answer(response: object, problem: HttpProblem): void {
  const body = JSON.stringify(problem)
  // Fastify's reply; an Express response has send() as well, but no code().
  if (hasMethods(response, 'code', 'header', 'send')) {
    ;(response as unknown as FastifyReply).code(problem.status).header('content-type', CONTENT_TYPE).send(body)
    return
  }
  const outgoing = response as Outgoing
  outgoing.statusCode = problem.status
  outgoing.setHeader('content-type', CONTENT_TYPE)
  outgoing.end(body)
}
