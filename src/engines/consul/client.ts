import { given } from '../../arguments.ts'
import { MOST_OF_ERROR, type Endpoints, type HttpCall, type HttpReply } from '../shared/http/endpoints.ts'
import { fromBase64, jsonIn } from '../shared/http/text.ts'
import { ConsulError, isFinal } from './errors.ts'

/** A key as the servers have it. */
export interface ConsulEntry {
  readonly key: string
  readonly value: string
  /** The session that has it locked; undefined when none has. */
  readonly session: string | undefined
  /** The index of the log at which it was created. */
  readonly createIndex: bigint
}

export type ConsulOperation = {
  readonly KV: { readonly Verb: string; readonly Key: string; readonly [field: string]: string }
}

export interface ConsulTransaction {
  readonly done: boolean
  /** Why it was not done. */
  readonly errors: readonly string[]
  readonly entries: readonly ConsulEntry[]
}

export interface ConsulAccess {
  readonly token: string | undefined
  readonly datacenter: string | undefined
  readonly namespace: string | undefined
}

/** The part of Consul's HTTP interface that leases need. */
export class ConsulClient {
  readonly endpoints: Endpoints
  readonly #headers: Record<string, string>
  readonly #scope: Record<string, string>

  constructor(endpoints: Endpoints, { token, datacenter, namespace }: ConsulAccess) {
    this.endpoints = endpoints
    this.#headers = given({ 'x-consul-token': token })
    this.#scope = given({ dc: datacenter, ns: namespace })
  }

  /** Reads the newest state: the leader makes sure that it still is the leader. */
  async read(key: string, timeoutMs: number): Promise<ConsulEntry | undefined> {
    const reply = await this.#send('GET', kvPath(key), { consistent: '' }, timeoutMs)
    return reply.status === 404 ? undefined : entriesIn(reply)[0]
  }

  async readAll(prefix: string, timeoutMs: number): Promise<ConsulEntry[]> {
    const reply = await this.#send('GET', kvPath(prefix), { recurse: '', consistent: '' }, timeoutMs)
    return reply.status === 404 ? [] : entriesIn(reply)
  }

  /** Resolves when the key has changed after that index, or at the latest after `waitMs`; with index 0, at once. */
  async changed(
    key: string,
    { index, waitMs, timeoutMs, signal }: { index: bigint; waitMs: number; timeoutMs: number; signal: AbortSignal },
  ): Promise<{ readonly index: bigint; readonly there: boolean }> {
    // The servers add up to a sixteenth, so that not all clients come back at once.
    const mostMs = Math.ceil((waitMs * 17) / 16) + timeoutMs
    const query = { index: String(index), wait: `${waitMs}ms` }
    const reply = await this.#send('GET', kvPath(key), query, mostMs, { signal })
    const seen = reply.headers.get('x-consul-index') ?? ''
    if (!/^[1-9]\d*$/.test(seen)) throw nonsense(reply)
    return { index: BigInt(seen), there: reply.status !== 404 }
  }

  async transact(operations: readonly ConsulOperation[], timeoutMs: number): Promise<ConsulTransaction> {
    const reply = await this.#send('PUT', '/v1/txn', {}, timeoutMs, { body: JSON.stringify(operations) })
    const answer = parsed(reply) as { Results?: { KV: unknown }[] | null; Errors?: { What: string }[] | null }
    if (reply.status === 409) return { done: false, errors: (answer.Errors ?? []).map(({ What }) => What), entries: [] }
    return { done: true, errors: [], entries: (answer.Results ?? []).map(({ KV }) => entryOf(KV, reply)) }
  }

  /** Returns the id of the new session. */
  async createSession(session: object, timeoutMs: number): Promise<string> {
    const reply = await this.#send('PUT', '/v1/session/create', {}, timeoutMs, { body: JSON.stringify(session) })
    const { ID: id } = parsed(reply) as { ID?: unknown }
    if (typeof id !== 'string') throw nonsense(reply)
    return id
  }

  /** Returns false when there is no session with this id. */
  async renewSession(id: string, timeoutMs: number): Promise<boolean> {
    const reply = await this.#send('PUT', `/v1/session/renew/${encodeURIComponent(id)}`, {}, timeoutMs)
    return reply.status !== 404
  }

  async destroySession(id: string, timeoutMs: number): Promise<void> {
    await this.#send('PUT', `/v1/session/destroy/${encodeURIComponent(id)}`, {}, timeoutMs)
  }

  /** Asks this server, about itself or about all servers. */
  async ask(url: string, path: string, timeoutMs: number): Promise<{ status: number; answer: unknown; text: string }> {
    const reply = await this.endpoints.ask(url, { method: 'GET', path, headers: this.#headers, timeoutMs })
    // An error is plain text.
    return { status: reply.status, answer: jsonIn(reply.text), text: reply.text }
  }

  async #send(
    method: 'GET' | 'PUT',
    path: string,
    query: Record<string, string>,
    timeoutMs: number,
    more: Pick<HttpCall, 'body' | 'signal'> = {},
  ): Promise<HttpReply> {
    const search = new URLSearchParams({ ...query, ...this.#scope }).toString()
    const address = search === '' ? path : `${path}?${search}`
    const reply = await this.endpoints.send(
      { method, path: address, headers: this.#headers, timeoutMs, ...more },
      unfit,
    )
    if ([200, 404, 409].includes(reply.status)) return reply
    throw new ConsulError(reply.text.trim().slice(0, MOST_OF_ERROR) || `status ${reply.status}`, reply.status)
  }
}

function unfit({ status, text }: HttpReply): string | undefined {
  if (status < 500 && status !== 429) return undefined
  return isFinal(text) ? undefined : `${status} ${text.trim().slice(0, 200)}`
}

function kvPath(key: string): string {
  return `/v1/kv/${key.split('/').map(encodeURIComponent).join('/')}`
}

function entriesIn(reply: HttpReply): ConsulEntry[] {
  const list = parsed(reply)
  if (!Array.isArray(list)) throw nonsense(reply)
  return list.map((each) => entryOf(each, reply))
}

function entryOf(each: unknown, reply: HttpReply): ConsulEntry {
  const { Key: key, Value: value, Session: session, CreateIndex: index } = (each ?? {}) as Record<string, unknown>
  // The log would have to grow for centuries to exceed what a number holds.
  if (typeof key !== 'string' || !Number.isSafeInteger(index)) throw nonsense(reply)
  return {
    key,
    value: fromBase64(value),
    session: typeof session === 'string' && session !== '' ? session : undefined,
    createIndex: BigInt(index as number),
  }
}

function parsed(reply: HttpReply): unknown {
  const answer = jsonIn(reply.text)
  if (typeof answer === 'object' && answer !== null) return answer
  throw nonsense(reply)
}

export function nonsense({ status, text }: Pick<HttpReply, 'status' | 'text'>): Error {
  return new Error(`expected an answer from Consul, got ${status} ${text.slice(0, 100)}`)
}
