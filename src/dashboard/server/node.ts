import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { given } from '../../arguments.ts'

type FetchHandler = (request: Request, from: { readonly remoteAddress?: string }) => Promise<Response>

/** Serves a fetch handler as `http.createServer` and Express want it. Rejects with what the handler rejects with. */
export async function serve(fetch: FetchHandler, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const request = requestOf(incoming)
  if (request === undefined) {
    outgoing.writeHead(400, { connection: 'close' }).end()
    return
  }
  const { remoteAddress } = incoming.socket
  const response = await fetch(request, given({ remoteAddress }))
  outgoing.writeHead(response.status, headersOf(response))
  if (response.body === null) outgoing.end()
  else await pipe(response.body, outgoing)
}

/** Undefined for what fetch knows no request for (TRACE, CONNECT, a target that is no path). */
function requestOf(incoming: IncomingMessage): Request | undefined {
  // Express takes the mount path off `url`.
  const { originalUrl: target = incoming.url ?? '' } = incoming as IncomingMessage & { originalUrl?: string }
  if (!target.startsWith('/')) return undefined
  const headers = new Headers()
  const { rawHeaders, method = 'GET', socket } = incoming
  try {
    for (let index = 0; index < rawHeaders.length; index += 2) {
      const [name, value] = [rawHeaders[index]!, rawHeaders[index + 1]!]
      if (name === ':authority') headers.set('host', value)
      else if (!name.startsWith(':')) headers.append(name, value)
    }
    // Our own name is in the Host header, which is looked at where it matters; here it must only be a URL.
    const url = `${'encrypted' in socket ? 'https' : 'http'}://localhost${target}`
    if (method === 'GET' || method === 'HEAD') return new Request(url, { method, headers })
    const body = Readable.toWeb(incoming) as unknown as ReadableStream<Uint8Array>
    return new Request(url, { method, headers, body, duplex: 'half' })
  } catch {
    return undefined
  }
}

function headersOf(response: Response): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = Object.fromEntries(response.headers)
  const cookies = response.headers.getSetCookie()
  if (cookies.length > 0) headers['set-cookie'] = cookies
  return headers
}

/** As fast as the other side reads; when that goes away, the body is cancelled. */
async function pipe(body: ReadableStream<Uint8Array>, outgoing: ServerResponse): Promise<void> {
  const reader = body.getReader()
  const gone = (): void => void reader.cancel().catch(() => undefined)
  outgoing.once('close', gone)
  outgoing.on('error', gone)
  // Headers go out at once, also if there is nothing to say yet.
  outgoing.flushHeaders()
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    if (outgoing.write(piece.value) || outgoing.destroyed) continue
    await new Promise<void>((resolve) => {
      const go = (): void => {
        outgoing.off('drain', go)
        outgoing.off('close', go)
        resolve()
      }
      outgoing.on('drain', go)
      outgoing.on('close', go)
    })
  }
  outgoing.off('close', gone)
  outgoing.end()
}
