import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { GuardError } from '../errors.ts'
import type { CasStore, FencedValue } from './cas.ts'

/** How objects are reached, and where in them the fence is. */
export interface ObjectStoreOptions {
  /** Returns the URL of the object of a key. */
  url: (key: string) => string
  /** Sends the request. Pass one that signs it, where the storage requires that. Default: the global `fetch`. */
  fetch?: (url: string, init: ObjectRequest) => Promise<ObjectResponse>
  /**
   * Where the fence is kept. `header` (the default): in the object's own metadata. The storage's ETag must then change with the
   * metadata, which that of S3 does not: it is made of the content alone. `body`: in a first line of the object, before
   * the value; readers without a guard must skip it. Choose `body` for S3 and storage that computes an ETag as S3 does.
   */
  fenceIn?: 'header' | 'body'
  /** The header of the object's own metadata that the fence is kept in. Default `x-amz-meta-fence`. */
  fenceHeader?: string
  /** Sent with every PUT: `content-type`, … */
  headers?: Readonly<Record<string, string>>
}

/** A request to an object storage, as `fetch` takes it. */
export interface ObjectRequest {
  readonly method: 'GET' | 'PUT'
  readonly headers: Record<string, string>
  /** Never of shared memory, which `fetch` refuses. */
  readonly body?: Uint8Array & { readonly buffer: ArrayBuffer }
}

/** What is read of the answer of an object storage: a `Response` of `fetch` is one. */
export interface ObjectResponse {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  arrayBuffer(): Promise<ArrayBuffer>
}

/**
 * Objects over HTTP with ETag, If-Match and If-None-Match, as in S3 and storage like it: the value is the body, the fence is
 * a header of the object's metadata or the first line of the body.
 */
export function objectStore(options: ObjectStoreOptions): CasStore<Uint8Array> {
  optionsOrThrow(options, ['url', 'fetch', 'fenceIn', 'fenceHeader', 'headers'])
  const { url, fetch: send = globalThis.fetch, headers = {} } = options
  if (typeof url !== 'function') throw new TypeError(`url: expected a function, got ${shown(url)}`)
  if (typeof send !== 'function') throw new TypeError(`fetch: expected a function, got ${shown(send)}`)
  const form = formOf(options)
  return {
    async read(key) {
      const response = await send(url(key), { method: 'GET', headers: {} })
      const body = new Uint8Array(await response.arrayBuffer())
      if (response.status === 404) return undefined
      if (response.status !== 200) throw unexpected('GET', key, response)
      const version = response.headers.get('etag')
      // Without it, the next write would have no condition.
      if (version === null || version === '') throw new Error(`the answer to GET of '${key}' has no ETag`)
      return { ...form.read(response, body), version }
    },
    async write(key, next, version) {
      const condition: Record<string, string> =
        version === undefined ? { 'if-none-match': '*' } : { 'if-match': version }
      const { fence, body } = form.written(next)
      const response = await send(url(key), { method: 'PUT', headers: { ...headers, ...condition, ...fence }, body })
      await response.arrayBuffer()
      if (response.status >= 200 && response.status < 300) {
        if (version !== undefined && response.headers.get('etag') === version) throw blind(key)
        return true
      }
      // S3 answers 409 to one of two conditional writes at once, and 404 where the object is gone.
      if ([404, 409, 412].includes(response.status)) return false
      throw unexpected('PUT', key, response)
    },
  }
}

/** How value and fence become an object. */
interface ObjectForm {
  read(response: ObjectResponse, body: Uint8Array): FencedValue<Uint8Array>
  written(next: FencedValue<Uint8Array>): { fence: Record<string, string>; body: Uint8Array & { buffer: ArrayBuffer } }
}

function formOf({ fenceIn = 'header', fenceHeader = 'x-amz-meta-fence' }: ObjectStoreOptions): ObjectForm {
  if (typeof fenceHeader !== 'string' || !/^[\w-]+$/.test(fenceHeader)) {
    throw new TypeError(`fenceHeader: expected the name of a header, got ${shown(fenceHeader)}`)
  }
  if (fenceIn === 'body') return IN_BODY
  if (fenceIn !== 'header') throw new TypeError(`fenceIn: expected 'header' or 'body', got ${shown(fenceIn)}`)
  return {
    read: (response, body) => unmarked(response.headers.get(fenceHeader) ?? undefined, body),
    written: (next) => ({ fence: { [fenceHeader]: marked(next) }, body: new Uint8Array(next.value ?? []) }),
  }
}

/** A first line with a fence begins with this; an object without it was written without a guard. */
const MAGIC = 'ringfence-fence: '

const IN_BODY: ObjectForm = {
  read(_response, body) {
    const end = body.indexOf(NEWLINE)
    const line = end === -1 ? '' : Buffer.from(body.subarray(0, end)).toString('latin1')
    if (!line.startsWith(MAGIC)) return { value: body, fence: undefined }
    return unmarked(line.slice(MAGIC.length), body.slice(end + 1))
  },
  written(next) {
    const line = Buffer.from(`${MAGIC}${marked(next)}\n`, 'latin1')
    const body = new Uint8Array(line.length + (next.value?.length ?? 0))
    body.set(line)
    body.set(next.value ?? [], line.length)
    return { fence: {}, body }
  },
}

const NEWLINE = 10

/** Marks an object that was only entered: it has no value yet, which is not the same as an empty value. */
const NOTHING = ' nothing'

function marked({ fence, value }: FencedValue<Uint8Array>): string {
  return `${fence}${value === undefined ? NOTHING : ''}`
}

function unmarked(text: string | undefined, value: Uint8Array): FencedValue<Uint8Array> {
  const isEmpty = text?.endsWith(NOTHING) === true
  return isEmpty ? { value: undefined, fence: text.slice(0, -NOTHING.length) } : { value, fence: text }
}

/** A process that read before this write could still write after it: its condition would hold. */
function blind(key: string): GuardError {
  return new GuardError(
    `the ETag of '${key}' did not change when its fence was raised: this storage makes it of the content alone, as S3 does; use ` +
      "objectStore({ fenceIn: 'body', … })",
    [],
    { transient: false },
  )
}

function unexpected(method: string, key: string, { status }: ObjectResponse): Error {
  return new Error(`unexpected answer ${status} to ${method} of '${key}'`)
}
