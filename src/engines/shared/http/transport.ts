import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'

/** The part of `fetch` that is used. The platform's own fits, and so does undici's with a dispatcher bound to it. */
export type Fetch = (
  url: string,
  init: {
    readonly method: string
    readonly headers: Record<string, string>
    readonly body?: string
    readonly signal: AbortSignal
  },
) => Promise<FetchReply>

/** What is read of an answer: a `Response` of `fetch` is one. */
export interface FetchReply {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  readonly body: AsyncIterable<Uint8Array> | null
}

/** For servers whose certificate your own authority signed, and for servers that ask for a client's certificate. PEM. */
export interface TlsOptions {
  /** The authority that signed the servers' certificates. Default: the authorities that Node trusts. */
  ca?: string | Buffer | (string | Buffer)[]
  /** The client's certificate, with its `key`. */
  cert?: string | Buffer
  key?: string | Buffer
  /** The name in the servers' certificates, where it is not the name in the URL. */
  servername?: string
}

export interface Transport {
  readonly fetch: Fetch
  /** Ends every connection, including those in use. */
  close(): void
}

/**
 * `fetch` on node:http. The platform's own takes no certificates and cannot close its connections, and an engine must leave
 * none behind.
 */
export function nodeTransport(tls: TlsOptions): Transport {
  const plain = new HttpAgent({ keepAlive: true })
  const secure = new HttpsAgent({ keepAlive: true, ...tls })
  const fetch: Fetch = (url, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const answered = (message: IncomingMessage): void =>
        resolve({
          status: message.statusCode ?? 0,
          headers: { get: (name) => [message.headers[name.toLowerCase()] ?? []].flat()[0] ?? null },
          body: message,
        })
      const request = url.startsWith('https:')
        ? httpsRequest(url, { method, headers, signal, agent: secure }, answered)
        : httpRequest(url, { method, headers, signal, agent: plain }, answered)
      request.on('error', reject)
      request.end(body)
    })
  return {
    fetch,
    close() {
      plain.destroy()
      secure.destroy()
    },
  }
}
