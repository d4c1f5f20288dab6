import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { isLoopback, LIMITS, listen, listenAddress, urlOf } from '../listening.ts'
import type { Call } from '../session.ts'

/** The one after that of the dashboard. */
const DEFAULT_PORT = 7465

/** All that the page consists of. Whatever else lies on the disk has no address. */
const FILES = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/lab.css': ['lab.css', 'text/css; charset=utf-8'],
  '/lab.js': ['lab.js', 'text/javascript; charset=utf-8'],
} as const

/** Also for the sources: only a build has the page as a browser wants it. */
const FOLDER = new URL('../../../dist/lab/', import.meta.url)

interface LabFile {
  readonly content: Buffer
  readonly type: string
}

/** Serves the lab until it is interrupted. */
export async function lab({ line, output, signals }: Call): Promise<number> {
  const where = listenAddress(line.options.text('listen') ?? String(DEFAULT_PORT))
  if (!isLoopback(where.host)) throw elsewhere(where.host)
  const files = readFiles()
  const server = createServer(LIMITS, (request, response) => answer(files, request, response))
  const bound = await listen(server, where)
  try {
    // What a name such as localhost stands for is known only now.
    if (!isLoopback(bound.address)) throw elsewhere(`${where.host}, which is ${bound.address},`)
    const url = `${urlOf(bound)}/`
    if (output.json) output.object({ url })
    else output.line(`the lab is at ${url}`)
    if (!signals.interrupted.aborted) await once(signals.interrupted, 'abort')
  } finally {
    server.closeAllConnections()
    server.close()
  }
  return EXIT.ok
}

function readFiles(): ReadonlyMap<string, LabFile> {
  try {
    return new Map(
      Object.entries(FILES).map(([path, [name, type]]) => [
        path,
        { type, content: readFileSync(new URL(name, FOLDER)) },
      ]),
    )
  } catch (error) {
    const next = 'install ringfence again; in a clone of its repository, npm run build'
    throw new Failure(EXIT.failed, `the page of the lab cannot be read: ${(error as Error).message}`, next, error)
  }
}

function answer(files: ReadonlyMap<string, LabFile>, request: IncomingMessage, response: ServerResponse): void {
  const headers = { 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' }
  const refuse = (status: number, text: string, more = {}): void => {
    response.writeHead(status, { ...headers, ...more, 'content-type': 'text/plain; charset=utf-8' }).end(`${text}\n`)
  }
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    refuse(405, 'the lab is only read: expected GET or HEAD', { allow: 'GET, HEAD' })
    return
  }
  const [path = ''] = request.url!.split(/[?#]/)
  const file = files.get(path)
  if (file === undefined) {
    refuse(404, 'the lab has no such file; its page is at /')
    return
  }
  const { content, type } = file
  response.writeHead(200, { ...headers, 'content-type': type, 'content-length': content.length })
  response.end(request.method === 'HEAD' ? undefined : content)
}

function elsewhere(host: string): Failure {
  return usage(
    `--listen: the lab is for this machine only, but ${host} is open to others`,
    'take 127.0.0.1, ::1 or localhost',
  )
}
