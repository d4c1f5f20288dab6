import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'

interface StoredObject {
  readonly body: Buffer
  readonly etag: string
  readonly metadata: Record<string, string>
}

export interface ObjectsServer extends AsyncDisposable {
  readonly url: string
  /** Answers every request with this status, until it is undefined again. */
  status: number | undefined
}

export interface ObjectsOptions {
  /** What an ETag is made of: every write has its own (Azure), or it is that of the content alone (S3). */
  etag?: 'write' | 'content'
}

/** Object storage as far as conditional requests go: GET with an ETag, PUT with If-Match and If-None-Match, metadata. */
export async function startObjects({ etag: kind = 'write' }: ObjectsOptions = {}): Promise<ObjectsServer> {
  const objects = new Map<string, StoredObject>()
  let writes = 0
  const put = (name: string, request: IncomingMessage, body: Buffer): number => {
    const { 'if-match': match, 'if-none-match': noneMatch } = request.headers
    const current = objects.get(name)
    if (match !== undefined && current === undefined) return 404
    if (match !== undefined && current?.etag !== match) return 412
    if (noneMatch === '*' && current !== undefined) return 412
    const metadata = Object.entries(request.headers).flatMap(([header, value]) =>
      header.startsWith('x-amz-meta-') ? [[header, String(value)]] : [],
    )
    const salt = kind === 'content' ? '' : `${++writes}`
    const hash = createHash('md5').update(salt).update(body).digest('hex')
    objects.set(name, { body, etag: `"${hash}"`, metadata: Object.fromEntries(metadata) })
    return 200
  }
  const handle: ObjectsServer = { url: '', status: undefined, [Symbol.asyncDispose]: async () => undefined }
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await buffer(request)
    const name = String(request.url)
    const found = objects.get(name)
    if (handle.status !== undefined) response.writeHead(handle.status).end()
    else if (request.method === 'PUT') {
      const status = put(name, request, body)
      response.writeHead(status, status === 200 ? { etag: objects.get(name)!.etag } : {}).end()
    } else if (found === undefined) response.writeHead(404).end()
    else response.writeHead(200, { etag: found.etag, ...found.metadata }).end(found.body)
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return Object.assign(handle, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  })
}
