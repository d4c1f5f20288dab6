import type { Call, Endpoints, Reply } from '../http/endpoints.ts'
import type { Range } from './keys.ts'

/** A key with its value, as far as we need it. Numbers of 64 bits come as text and stay so, or become a bigint. */
export interface KeyValue {
  readonly key: string
  readonly value: string
  readonly createRevision: bigint
  /** The id of the etcd lease it is bound to; '0' for none. */
  readonly lease: string
}

export interface Header {
  readonly clusterId: string
  readonly memberId: string
  readonly revision: bigint
  /** The leader's term as the answering member knew it. */
  readonly term: string
}

export type Json = { readonly [name: string]: unknown }

/** etcd answered, and refused. */
export class EtcdError extends Error {
  /** gRPC's number for the kind of error. */
  readonly code: number
  /** False when to ask again can't help. */
  readonly transient: boolean

  constructor(message: string, code: number) {
    super(message)
    this.name = 'EtcdError'
    this.code = code
    this.transient = ![INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED, UNIMPLEMENTED].includes(code)
  }
}

const INVALID_ARGUMENT = 3
const NOT_FOUND = 5
const PERMISSION_DENIED = 7
const FAILED_PRECONDITION = 9
const UNIMPLEMENTED = 12
const UNAUTHENTICATED = 16

export interface Login {
  readonly username: string
  readonly password: string
}

/** etcd's JSON gateway: one method a call, with a login where one is needed. */
export class Gateway {
  readonly endpoints: Endpoints
  readonly #login: Login | undefined
  #token: Promise<string | undefined> | undefined

  constructor(endpoints: Endpoints, login: Login | undefined) {
    this.endpoints = endpoints
    this.#login = login
  }

  async call(method: string, body: object, timeoutMs: number): Promise<Json> {
    const token = await this.#authenticated(timeoutMs)
    try {
      return await this.#post(method, body, timeoutMs, token)
    } catch (error) {
      if (this.#login === undefined || !isStaleLogin(error)) throw error
      // A token lasts for some minutes, and not longer than the member that gave it.
      this.#token = undefined
      return this.#post(method, body, timeoutMs, await this.#authenticated(timeoutMs))
    }
  }

  /** One member, this one, about itself; also when it knows no leader. */
  async ask(url: string, method: string, body: object, timeoutMs: number): Promise<Json> {
    return read(await this.endpoints.ask(url, request(method, body, timeoutMs, { 'content-type': 'application/json' })))
  }

  /** The messages of a method that answers without an end. */
  async *stream(method: string, body: object, timeoutMs: number, signal: AbortSignal): AsyncGenerator<Json> {
    const token = await this.#authenticated(timeoutMs)
    const { status, text } = await this.endpoints.open(request(method, body, timeoutMs, headersFor(token)), signal)
    let rest = ''
    try {
      for await (const piece of text) {
        const lines = (rest + piece).split('\n')
        rest = lines.pop()!
        for (const line of lines) if (line !== '') yield message(status, line)
      }
      if (rest !== '') yield message(status, rest)
    } catch (error) {
      if (this.#login === undefined || !isStaleLogin(error)) throw error
      this.#token = undefined
      throw new Error('the login was over', { cause: error })
    }
  }

  /** Several reads in one step, of one revision and as new as any. */
  async read(ranges: readonly object[], timeoutMs: number): Promise<{ header: Header; found: KeyValue[][] }> {
    const { header, results } = await this.transact([], ranges.map(range), [], timeoutMs)
    return { header, found: results }
  }

  async transact(
    compare: readonly object[],
    success: readonly object[],
    failure: readonly object[],
    timeoutMs: number,
  ): Promise<{ header: Header; succeeded: boolean; results: KeyValue[][] }> {
    const answer = await this.call('kv/txn', { compare, success, failure }, timeoutMs)
    const responses = (answer['responses'] ?? []) as readonly Json[]
    const expected = answer['succeeded'] === true ? success : failure
    if (responses.length !== expected.length) throw nonsense(answer)
    return {
      header: headerOf(answer),
      succeeded: answer['succeeded'] === true,
      results: responses.map((response) => keyValues((response['response_range'] ?? {}) as Json)),
    }
  }

  #authenticated(timeoutMs: number): Promise<string | undefined> {
    if (this.#login === undefined) return Promise.resolve(undefined)
    this.#token ??= this.#authenticate(this.#login, timeoutMs).catch((error: unknown) => {
      this.#token = undefined
      throw error
    })
    return this.#token
  }

  async #authenticate({ username, password }: Login, timeoutMs: number): Promise<string | undefined> {
    try {
      const { token } = await this.#post('auth/authenticate', { name: username, password }, timeoutMs, undefined)
      return String(token)
    } catch (error) {
      // Switched off on the servers: then nobody needs to log in.
      if (error instanceof EtcdError && error.code === FAILED_PRECONDITION) return undefined
      throw error
    }
  }

  async #post(method: string, body: object, timeoutMs: number, token: string | undefined): Promise<Json> {
    return read(await this.endpoints.send(request(method, body, timeoutMs, headersFor(token)), unfit))
  }
}

function request(method: string, body: object, timeoutMs: number, headers: Record<string, string>): Call {
  return { method: 'POST', path: `/v3/${method}`, headers, body: JSON.stringify(body), timeoutMs }
}

/** With `hasleader`, a member that knows no leader says so at once instead of waiting for one. */
function headersFor(token: string | undefined): Record<string, string> {
  const headers = { 'content-type': 'application/json', 'grpc-metadata-hasleader': 'true' }
  return token === undefined ? headers : { ...headers, authorization: token }
}

/** It answers, but can't serve: no leader, not a voting member, stopping, or not etcd at all. */
function unfit({ status, text }: Reply): string | undefined {
  if (status === 200 || (status < 500 && status !== 408)) return undefined
  return `${status} ${errorIn(text)?.message ?? text.slice(0, 100)}`
}

function read({ status, text }: Reply): Json {
  return message(status, text)
}

function message(status: number, text: string): Json {
  const error = errorIn(text)
  if (error !== undefined) throw new EtcdError(error.message, error.code)
  const answer = parsed(text)
  if (status !== 200 || answer === undefined)
    throw new Error(`expected an answer of etcd's, got ${status} ${text.slice(0, 100)}`)
  return answer
}

function parsed(text: string): Json | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Json) : undefined
  } catch {
    return undefined
  }
}

/** The error is the answer itself, or a part of it where a stream breaks off; the fields differ between versions. */
function errorIn(text: string): { message: string; code: number } | undefined {
  const answer = parsed(text)
  const inner = answer?.['error']
  const error = (typeof inner === 'object' && inner !== null ? inner : answer) as Json | undefined
  const code = error?.['code'] ?? error?.['grpc_code']
  if (error === undefined || typeof code !== 'number') return undefined
  return { message: String(error['message'] ?? inner), code }
}

function isStaleLogin(error: unknown): boolean {
  if (!(error instanceof EtcdError)) return false
  return (
    error.code === UNAUTHENTICATED ||
    /invalid auth token|revision in header is old|user name is empty/.test(error.message)
  )
}

export function isNotFound(error: unknown): boolean {
  return error instanceof EtcdError && error.code === NOT_FOUND
}

export function isThereAlready(error: unknown): boolean {
  return error instanceof EtcdError && error.code === FAILED_PRECONDITION
}

export function isDenied(error: unknown): boolean {
  return error instanceof EtcdError && [INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED].includes(error.code)
}

export function headerOf(answer: Json): Header {
  const header = answer['header'] as Json | undefined
  if (typeof header !== 'object' || header === null) throw nonsense(answer)
  return {
    clusterId: String(header['cluster_id']),
    memberId: String(header['member_id']),
    revision: numberIn(header['revision'] ?? '0', answer),
    term: String(header['raft_term']),
  }
}

export function numberIn(value: unknown, answer: Json): bigint {
  if (typeof value !== 'string' || !/^-?\d+$/.test(value)) throw nonsense(answer)
  return BigInt(value)
}

function keyValues(response: Json): KeyValue[] {
  return ((response['kvs'] ?? []) as readonly Json[]).map((each) => ({
    key: text(each['key']),
    value: text(each['value']),
    createRevision: numberIn(each['create_revision'], each),
    lease: String(numberIn(each['lease'] ?? '0', each)),
  }))
}

export function rangeAnswer(answer: Json): { header: Header; found: KeyValue[]; more: boolean } {
  return { header: headerOf(answer), found: keyValues(answer), more: answer['more'] === true }
}

function nonsense(answer: Json): Error {
  return new Error(`expected an answer of etcd's, got ${JSON.stringify(answer).slice(0, 100)}`)
}

export function base64(value: string): string {
  return Buffer.from(value).toString('base64')
}

function text(value: unknown): string {
  return typeof value === 'string' ? Buffer.from(value, 'base64').toString() : ''
}

/** As the gateway wants it. */
export function within({ key, rangeEnd }: Range): { key: string; range_end: string } {
  return { key: base64(key), range_end: base64(rangeEnd) }
}

function range(request: object): object {
  return { request_range: request }
}

export function put(key: string, value: string, lease: string): object {
  return { request_put: { key: base64(key), value: base64(value), lease } }
}

/** True when the key has that create revision; '0' means that it is not there, or nothing in the range. */
export function created(key: object, revision: string): object {
  return { ...key, target: 'CREATE', result: 'EQUAL', create_revision: revision }
}
