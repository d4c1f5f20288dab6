import type { Call, Endpoints, Reply } from '../http/endpoints.ts'

/** A key as the servers have it. */
export interface Entry {
  readonly key: string
  readonly value: string
  /** Who has it locked; undefined when nobody has. */
  readonly session: string | undefined
  /** The index of the log at which it was created. */
  readonly createIndex: bigint
}

export type Operation = {
  readonly KV: { readonly Verb: string; readonly Key: string; readonly [field: string]: string }
}

export interface Transaction {
  readonly done: boolean
  /** Why not. */
  readonly errors: readonly string[]
  readonly entries: readonly Entry[]
}

/** Consul answered, and refused. */
export class ConsulError extends Error {
  readonly status: number
  /** False when to ask again can't help. */
  readonly transient: boolean

  constructor(message: string, status: number, transient: boolean) {
    super(message)
    this.name = 'ConsulError'
    this.status = status
    this.transient = transient
  }
}

export interface Access {
  readonly token: string | undefined
  readonly datacenter: string | undefined
  readonly namespace: string | undefined
}

/** Consul's HTTP interface, as far as we need it. */
export class ConsulClient {
  readonly endpoints: Endpoints
  readonly #headers: Record<string, string>
  readonly #scope: Record<string, string>

  constructor(endpoints: Endpoints, { token, datacenter, namespace }: Access) {
    this.endpoints = endpoints
    this.#headers = token === undefined ? {} : { 'x-consul-token': token }
    this.#scope = {
      ...(datacenter === undefined ? {} : { dc: datacenter }),
      ...(namespace === undefined ? {} : { ns: namespace }),
    }
  }

  /** As new as any: the leader makes sure that it still is. */
  async read(key: string, timeoutMs: number): Promise<Entry | undefined> {
    const reply = await this.#send('GET', kvPath(key), { consistent: '' }, timeoutMs)
    return reply.status === 404 ? undefined : entriesIn(reply)[0]
  }

  async readAll(prefix: string, timeoutMs: number): Promise<Entry[]> {
    const reply = await this.#send('GET', kvPath(prefix), { recurse: '', consistent: '' }, timeoutMs)
    return reply.status === 404 ? [] : entriesIn(reply)
  }

  /** Answers when the key has changed after that index, or nothing did for that long; index 0 answers at once. */
  async changed(
    key: string,
    { index, waitMs, timeoutMs, signal }: { index: bigint; waitMs: number; timeoutMs: number; signal: AbortSignal },
  ): Promise<{ readonly index: bigint; readonly there: boolean }> {
    // The servers add up to a sixteenth, so that not everyone comes back at once.
    const mostMs = Math.ceil((waitMs * 17) / 16) + timeoutMs
    const query = { index: String(index), wait: `${waitMs}ms` }
    const reply = await this.#send('GET', kvPath(key), query, mostMs, undefined, signal)
    const seen = reply.headers.get('x-consul-index') ?? ''
    if (!/^[1-9]\d*$/.test(seen)) throw nonsense(reply)
    return { index: BigInt(seen), there: reply.status !== 404 }
  }

  async transact(operations: readonly Operation[], timeoutMs: number): Promise<Transaction> {
    const reply = await this.#send('PUT', '/v1/txn', {}, timeoutMs, JSON.stringify(operations))
    const answer = parsed(reply) as { Results?: { KV: unknown }[] | null; Errors?: { What: string }[] | null }
    if (reply.status === 409) return { done: false, errors: (answer.Errors ?? []).map(({ What }) => What), entries: [] }
    return { done: true, errors: [], entries: (answer.Results ?? []).map(({ KV }) => entryOf(KV, reply)) }
  }

  /** The id of a new session. */
  async createSession(session: object, timeoutMs: number): Promise<string> {
    const reply = await this.#send('PUT', '/v1/session/create', {}, timeoutMs, JSON.stringify(session))
    const { ID: id } = parsed(reply) as { ID?: unknown }
    if (typeof id !== 'string') throw nonsense(reply)
    return id
  }

  /** False when there is none with this id. */
  async renewSession(id: string, timeoutMs: number): Promise<boolean> {
    const reply = await this.#send('PUT', `/v1/session/renew/${encodeURIComponent(id)}`, {}, timeoutMs)
    return reply.status !== 404
  }

  async destroySession(id: string, timeoutMs: number): Promise<void> {
    await this.#send('PUT', `/v1/session/destroy/${encodeURIComponent(id)}`, {}, timeoutMs)
  }

  /** One server, this one, about itself or about all of them. */
  async ask(url: string, path: string, timeoutMs: number): Promise<{ status: number; answer: unknown; text: string }> {
    const reply = await this.endpoints.ask(url, { method: 'GET', path, headers: this.#headers, timeoutMs })
    let answer: unknown
    try {
      answer = JSON.parse(reply.text)
    } catch {
      // Errors are plain text.
    }
    return { status: reply.status, answer, text: reply.text }
  }

  async #send(
    method: 'GET' | 'PUT',
    path: string,
    query: Record<string, string>,
    timeoutMs: number,
    body?: string,
    signal?: AbortSignal,
  ): Promise<Reply> {
    const search = new URLSearchParams({ ...query, ...this.#scope }).toString()
    const call: Call = {
      method,
      path: search === '' ? path : `${path}?${search}`,
      headers: this.#headers,
      timeoutMs,
      ...(body === undefined ? {} : { body }),
      ...(signal === undefined ? {} : { signal }),
    }
    const reply = await this.endpoints.send(call, unfit)
    if ([200, 404, 409].includes(reply.status)) return reply
    throw new ConsulError(reply.text.trim() || `status ${reply.status}`, reply.status, false)
  }
}

/** What the servers refuse for good is told with the same status as their own failures. */
const REFUSED = /Permission denied|ACL not found|Invalid Session TTL|No path to datacenter|Missing node registration/

function unfit({ status, text }: Reply): string | undefined {
  if (status < 500 && status !== 429) return undefined
  return REFUSED.test(text) ? undefined : `${status} ${text.trim().slice(0, 200)}`
}

export function isDenied(error: unknown): boolean {
  return error instanceof ConsulError && (error.status === 403 || /Permission denied|ACL not found/.test(error.message))
}

function kvPath(key: string): string {
  return `/v1/kv/${key.split('/').map(encodeURIComponent).join('/')}`
}

function entriesIn(reply: Reply): Entry[] {
  const list = parsed(reply)
  if (!Array.isArray(list)) throw nonsense(reply)
  return list.map((each) => entryOf(each, reply))
}

function entryOf(each: unknown, reply: Reply): Entry {
  const { Key: key, Value: value, Session: session, CreateIndex: index } = (each ?? {}) as Record<string, unknown>
  // A log would have to grow for centuries to get beyond what a number holds.
  if (typeof key !== 'string' || !Number.isSafeInteger(index)) throw nonsense(reply)
  return {
    key,
    value: typeof value === 'string' ? Buffer.from(value, 'base64').toString() : '',
    session: typeof session === 'string' && session !== '' ? session : undefined,
    createIndex: BigInt(index as number),
  }
}

function parsed(reply: Reply): unknown {
  try {
    const answer: unknown = JSON.parse(reply.text)
    if (typeof answer === 'object' && answer !== null) return answer
  } catch {
    // Told below.
  }
  throw nonsense(reply)
}

function nonsense({ status, text }: Reply): Error {
  return new Error(`expected an answer of Consul's, got ${status} ${text.slice(0, 100)}`)
}

export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
