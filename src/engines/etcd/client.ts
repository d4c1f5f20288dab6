import { MOST_OF_ERROR, shortOrThrow, type Endpoints, type HttpCall, type HttpReply } from '../shared/http/endpoints.ts'
import { base64, fromBase64, jsonIn } from '../shared/http/text.ts'
import { CODE, EtcdError, isCode, isStaleLogin } from './errors.ts'
import type { KeyRange } from './keys.ts'

/** A key with its value. Numbers of 64 bits come as text; they stay text or become a bigint. */
export interface EtcdKeyValue {
  readonly key: string
  readonly value: string
  readonly createRevision: bigint
  /** The id of the etcd lease that the key is bound to; '0' for none. */
  readonly lease: string
}

export interface EtcdHeader {
  readonly clusterId: string
  readonly memberId: string
  readonly revision: bigint
  /** The leader's term as the answering member knew it. */
  readonly term: string
}

export type EtcdJson = { readonly [name: string]: unknown }

export interface EtcdLogin {
  readonly username: string
  readonly password: string
}

/** Speaks to etcd through its JSON gateway: one method for each call, with a login where one is needed. */
export class EtcdClient {
  readonly endpoints: Endpoints
  readonly #login: EtcdLogin | undefined
  #token: Promise<string | undefined> | undefined

  constructor(endpoints: Endpoints, login: EtcdLogin | undefined) {
    this.endpoints = endpoints
    this.#login = login
  }

  async call(method: string, body: object, timeoutMs: number): Promise<EtcdJson> {
    const token = await this.#authenticated(timeoutMs)
    try {
      return await this.#post(method, body, timeoutMs, token)
    } catch (error) {
      if (this.#login === undefined || !isStaleLogin(error)) throw error
      this.#token = undefined
      return this.#post(method, body, timeoutMs, await this.#authenticated(timeoutMs))
    }
  }

  /** Asks this member about itself, even when it knows no leader. */
  async ask(url: string, method: string, body: object, timeoutMs: number): Promise<EtcdJson> {
    return messageIn(
      await this.endpoints.ask(url, request(method, body, timeoutMs, { 'content-type': 'application/json' })),
    )
  }

  /** Returns the messages of a method that answers without an end. */
  async *stream(method: string, body: object, timeoutMs: number, signal: AbortSignal): AsyncGenerator<EtcdJson> {
    const token = await this.#authenticated(timeoutMs)
    const { status, text } = await this.endpoints.open(request(method, body, timeoutMs, headersFor(token)), signal)
    let rest = ''
    try {
      for await (const piece of text) {
        const lines = (rest + piece).split('\n')
        rest = shortOrThrow(lines.pop()!)
        for (const line of lines) if (line !== '') yield messageIn({ status, text: line })
      }
      if (rest !== '') yield messageIn({ status, text: rest })
    } catch (error) {
      if (this.#login === undefined || !isStaleLogin(error)) throw error
      this.#token = undefined
      throw new Error('the login has expired', { cause: error })
    }
  }

  /** Several reads in one step, all of one revision, which is the newest. */
  async read(ranges: readonly object[], timeoutMs: number): Promise<{ header: EtcdHeader; found: EtcdKeyValue[][] }> {
    const { header, results } = await this.transact([], ranges.map(rangeRequest), [], timeoutMs)
    return { header, found: results }
  }

  async transact(
    compare: readonly object[],
    success: readonly object[],
    failure: readonly object[],
    timeoutMs: number,
  ): Promise<{ header: EtcdHeader; succeeded: boolean; results: EtcdKeyValue[][] }> {
    const answer = await this.call('kv/txn', { compare, success, failure }, timeoutMs)
    const responses = (answer['responses'] ?? []) as readonly EtcdJson[]
    const expected = answer['succeeded'] === true ? success : failure
    if (responses.length !== expected.length) throw nonsense(answer)
    return {
      header: headerOf(answer),
      succeeded: answer['succeeded'] === true,
      results: responses.map((response) => keyValues((response['response_range'] ?? {}) as EtcdJson)),
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

  async #authenticate({ username, password }: EtcdLogin, timeoutMs: number): Promise<string | undefined> {
    try {
      const { token } = await this.#post('auth/authenticate', { name: username, password }, timeoutMs, undefined)
      return String(token)
    } catch (error) {
      // Authentication is switched off on the servers.
      if (isCode(error, CODE.failedPrecondition)) return undefined
      throw error
    }
  }

  async #post(method: string, body: object, timeoutMs: number, token: string | undefined): Promise<EtcdJson> {
    return messageIn(await this.endpoints.send(request(method, body, timeoutMs, headersFor(token)), unfit))
  }
}

function request(method: string, body: object, timeoutMs: number, headers: Record<string, string>): HttpCall {
  return { method: 'POST', path: `/v3/${method}`, headers, body: JSON.stringify(body), timeoutMs }
}

/** With `hasleader`, a member that knows no leader says so at once instead of waiting for one. */
function headersFor(token: string | undefined): Record<string, string> {
  const headers = { 'content-type': 'application/json', 'grpc-metadata-hasleader': 'true' }
  return token === undefined ? headers : { ...headers, authorization: token }
}

/** The server answers but cannot serve: it knows no leader, does not vote, is stopping, or is not etcd at all. */
function unfit({ status, text }: HttpReply): string | undefined {
  if (status === 200 || (status < 500 && status !== 408)) return undefined
  return `${status} ${errorIn(text)?.message ?? text.slice(0, 100)}`
}

function messageIn({ status, text }: Pick<HttpReply, 'status' | 'text'>): EtcdJson {
  const error = errorIn(text)
  if (error !== undefined) throw new EtcdError(error.message, error.code)
  const answer = parsed(text)
  if (status !== 200 || answer === undefined)
    throw new Error(`expected an answer from etcd, got ${status} ${text.slice(0, 100)}`)
  return answer
}

function parsed(text: string): EtcdJson | undefined {
  const value = jsonIn(text)
  return typeof value === 'object' && value !== null ? (value as EtcdJson) : undefined
}

/** The error is the whole answer, or a part of it where a stream breaks off. Its fields differ between versions. */
function errorIn(text: string): { message: string; code: number } | undefined {
  const answer = parsed(text)
  const inner = answer?.['error']
  const error = (typeof inner === 'object' && inner !== null ? inner : answer) as EtcdJson | undefined
  const code = error?.['code'] ?? error?.['grpc_code']
  if (error === undefined || typeof code !== 'number') return undefined
  return { message: String(error['message'] ?? inner).slice(0, MOST_OF_ERROR), code }
}

export function headerOf(answer: EtcdJson): EtcdHeader {
  const header = answer['header'] as EtcdJson | undefined
  if (typeof header !== 'object' || header === null) throw nonsense(answer)
  return {
    clusterId: String(header['cluster_id']),
    memberId: String(header['member_id']),
    revision: numberIn(header['revision'] ?? '0', answer),
    term: String(header['raft_term']),
  }
}

export function numberIn(value: unknown, answer: EtcdJson): bigint {
  if (typeof value !== 'string' || !/^-?\d+$/.test(value)) throw nonsense(answer)
  return BigInt(value)
}

function keyValues(response: EtcdJson): EtcdKeyValue[] {
  return ((response['kvs'] ?? []) as readonly EtcdJson[]).map((each) => ({
    key: fromBase64(each['key']),
    value: fromBase64(each['value']),
    createRevision: numberIn(each['create_revision'], each),
    lease: String(numberIn(each['lease'] ?? '0', each)),
  }))
}

export function rangeAnswer(answer: EtcdJson): { header: EtcdHeader; found: EtcdKeyValue[]; more: boolean } {
  return { header: headerOf(answer), found: keyValues(answer), more: answer['more'] === true }
}

function nonsense(answer: EtcdJson): Error {
  return new Error(`expected an answer from etcd, got ${JSON.stringify(answer).slice(0, 100)}`)
}

/** The fields of a range, as the gateway wants them. */
export function rangeFields({ key, rangeEnd }: KeyRange): { key: string; range_end: string } {
  return { key: base64(key), range_end: base64(rangeEnd) }
}

export function rangeRequest(request: object): object {
  return { request_range: request }
}

export function put(key: string, value: string, lease: string): object {
  return { request_put: { key: base64(key), value: base64(value), lease } }
}

/** A condition: the key has this create revision. '0' means that the key, or every key of the range, does not exist. */
export function created(key: object, revision: string): object {
  return { ...key, target: 'CREATE', result: 'EQUAL', create_revision: revision }
}
