import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import type { CasStore, FencedValue, Versioned } from './cas.ts'

export interface ObjectStoreOptions {
  /** Where the object of a key is. */
  url: (key: string) => string
  /** Sends the request; give one that signs it, where the storage wants that. Default: the global `fetch`. */
  fetch?: (url: string, init: ObjectRequest) => Promise<ObjectResponse>
  /** The header of the object's own metadata that the fence is kept in. Default `x-amz-meta-fence`. */
  fenceHeader?: string
  /** Sent with every PUT: `content-type`, … */
  headers?: Readonly<Record<string, string>>
}

export interface ObjectRequest {
  readonly method: 'GET' | 'PUT'
  readonly headers: Record<string, string>
  readonly body?: Uint8Array<ArrayBuffer>
}

export interface ObjectResponse {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  arrayBuffer(): Promise<ArrayBuffer>
}

/**
 * Objects over HTTP with ETag, If-Match and If-None-Match, as S3 and what is like it have: the value is the body, the
 * fence one header of the object's metadata.
 */
export function objectStore(options: ObjectStoreOptions): CasStore<Uint8Array> {
  optionsOrThrow(options, ['url', 'fetch', 'fenceHeader', 'headers'])
  const { url, fetch: send = globalThis.fetch, fenceHeader = 'x-amz-meta-fence', headers = {} } = options
  if (typeof url !== 'function') throw new TypeError(`url: expected a function, got ${shown(url)}`)
  if (typeof send !== 'function') throw new TypeError(`fetch: expected a function, got ${shown(send)}`)
  if (typeof fenceHeader !== 'string' || !/^[\w-]+$/.test(fenceHeader)) {
    throw new TypeError(`fenceHeader: expected the name of a header, got ${shown(fenceHeader)}`)
  }
  return {
    async read(key) {
      const response = await send(url(key), { method: 'GET', headers: {} })
      const body = await response.arrayBuffer()
      if (response.status === 404) return undefined
      if (response.status !== 200) throw unexpected('GET', key, response)
      return versioned(key, response, new Uint8Array(body), fenceHeader)
    },
    async write(key, { value, fence }, version) {
      const condition: Record<string, string> =
        version === undefined ? { 'if-none-match': '*' } : { 'if-match': version }
      const response = await send(url(key), {
        method: 'PUT',
        headers: { ...headers, ...condition, [fenceHeader]: marked(fence, value) },
        body: new Uint8Array(value ?? []),
      })
      await response.arrayBuffer()
      if (response.status >= 200 && response.status < 300) return true
      // S3 answers 409 to one of two conditional writes at once, and 404 where the object is gone.
      if ([404, 409, 412].includes(response.status)) return false
      throw unexpected('PUT', key, response)
    },
  }
}

/** An object that was only entered has no body yet, which must not be taken for an empty one. */
const NOTHING = ' nothing'

function marked(fence: string | undefined, value: Uint8Array | undefined): string {
  return `${fence}${value === undefined ? NOTHING : ''}`
}

function versioned(key: string, response: ObjectResponse, body: Uint8Array, header: string): Versioned<Uint8Array> {
  const version = response.headers.get('etag')
  // Without it, the condition of the next write would be none.
  if (version === null || version === '') throw new Error(`the answer to GET of '${key}' has no ETag`)
  const text = response.headers.get(header) ?? undefined
  const isEmpty = text?.endsWith(NOTHING) === true
  const fence: FencedValue<Uint8Array>['fence'] = isEmpty ? text.slice(0, -NOTHING.length) : text
  return { value: isEmpty ? undefined : body, fence, version }
}

function unexpected(method: string, key: string, { status }: ObjectResponse): Error {
  return new Error(`unexpected answer ${status} to ${method} of '${key}'`)
}
