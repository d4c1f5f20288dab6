import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { systemClock } from '../../../../../src/clock.ts'
import {
  Endpoints,
  NoServerError,
  reasonOf,
  type HttpCall,
  type Unfit,
} from '../../../../../src/engines/shared/http/endpoints.ts'
import { nodeTransport } from '../../../../../src/engines/shared/http/transport.ts'

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

function endpoints(...urls: string[]): Endpoints {
  const made = new Endpoints(urls, nodeTransport({}), systemClock)
  onTestFinished(() => made.close())
  return made
}

const GET: HttpCall = { method: 'GET', path: '/x', headers: {}, timeoutMs: 2000 }
const fit = (): undefined => undefined
const unfitIfBroken: Unfit = ({ status, text }) => (status === 500 ? text : undefined)

test('the server that answered last is asked first; one that can’t serve is left for the next', async () => {
  let asked = 0
  const broken = await serve((_request, response) => {
    asked++
    response.statusCode = 500
    response.end('no leader')
  })
  const good = await serve((_request, response) => void response.end('hello'))
  const servers = endpoints(broken, good)
  for (let i = 0; i < 3; i++) expect((await servers.send(GET, unfitIfBroken)).text).toBe('hello')
  expect(asked).toBe(1)
  expect(servers.current).toBe(good)
})

test('a server that hangs is left after its time, in the middle of an answer too', async () => {
  const silent = await serve(() => undefined)
  const stuck = await serve((_request, response) => void response.write('half of it'))
  const error = await endpoints(silent, stuck)
    .send({ ...GET, timeoutMs: 100 }, fit)
    .catch((reason: unknown) => reason)
  expect(error).toBeInstanceOf(NoServerError)
  expect((error as Error).message).toBe(`${silent}: no answer within 100 ms; ${stuck}: no answer within 100 ms`)
})

test('a server whose answer does not end is left when that is longer than any answer, and its connection is closed', async () => {
  const piece = 'x'.repeat(4 * 1024 * 1024)
  let closed!: () => void
  const isClosed = new Promise<void>((resolve) => (closed = resolve))
  const endless = await serve((_request, response) => {
    response.on('close', closed)
    // Node 26 calls back, with an error, for a response that is closed as well.
    const more = (error?: Error | null): void => void (error ?? response.write(piece, more))
    more()
  })
  const good = await serve((_request, response) => void response.end('hello'))
  const servers = endpoints(endless, good)
  expect((await servers.send({ ...GET, timeoutMs: 60_000 }, fit)).text).toBe('hello')
  await isClosed
  await expect(servers.ask(endless, { ...GET, timeoutMs: 60_000 })).rejects.toThrow(
    `${endless}: an answer of more than 64 MB is not one to a lock`,
  )
})

test('a fetch that does not care about its signal is left after its time too', async () => {
  const transport = { fetch: () => new Promise<never>(() => undefined), close: () => undefined }
  const servers = new Endpoints(['http://a'], transport, systemClock)
  await expect(servers.send({ ...GET, timeoutMs: 50 }, fit)).rejects.toThrow('http://a: no answer within 50 ms')
})

test('a connection that the server closed while it was idle is opened anew', async () => {
  let requests = 0
  const url = await serve((request, response) => {
    requests++
    if (requests === 2) request.socket.resetAndDestroy()
    else response.end('hello')
  })
  const servers = endpoints(url)
  for (let i = 0; i < 2; i++) expect((await servers.send(GET, fit)).text).toBe('hello')
  expect(requests).toBe(3)
})

test('a question that nobody wants answered any more ends at once, and is held against no server', async () => {
  const silent = await serve(() => undefined)
  const servers = endpoints(silent, 'http://127.0.0.1:9')
  const controller = new AbortController()
  const sent = servers.send({ ...GET, timeoutMs: 20_000, signal: controller.signal }, fit)
  controller.abort(new Error('enough'))
  await expect(sent).rejects.toThrow('enough')
  expect(servers.current).toBe(silent)
})

test('closing ends what is under way, and nothing more is sent', async () => {
  const silent = await serve((_request, response) => void response.write('first\n'))
  const servers = endpoints(silent)
  const sent = servers.send({ ...GET, timeoutMs: 20_000 }, fit).catch((reason: unknown) => reason)
  const { text } = await servers.open(GET, new AbortController().signal)
  const pieces: string[] = []
  const read = (async () => {
    for await (const piece of text) {
      pieces.push(piece)
      servers.close()
    }
  })()
  await expect(read).rejects.toThrow(/abort|closed/)
  expect(pieces).toEqual(['first\n'])
  expect(await sent).toBeInstanceOf(NoServerError)
  await expect(servers.send(GET, fit)).rejects.toThrow('closed')
})

test('the reason is that of the innermost cause', () => {
  const refused = Object.assign(new Error(''), { code: 'ECONNREFUSED' })
  expect(reasonOf(new TypeError('fetch failed', { cause: new AggregateError([refused]) }))).toBe('ECONNREFUSED')
  expect(reasonOf(new Error('plain'))).toBe('plain')
  expect(reasonOf('text')).toBe('text')
})
