import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import * as fc from 'fast-check'
import { afterAll, beforeAll, test } from 'vitest'
import { consul } from '../../../src/engines/consul/index.ts'
import { etcd } from '../../../src/engines/etcd/index.ts'
import { CALLS, expectSaid, tokenFrom } from './calls.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

/** What the server sends for each request, in turn; then it closes the connection. */
let answers: readonly string[] = ['']
let requests = 0
const server = createServer((socket) => {
  socket.on('error', () => undefined)
  socket.once('data', () => socket.end(answers[requests++ % answers.length]!, 'latin1'))
})
let url = ''
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => void server.close())

/** Fields that both servers use, with values that they do not. */
const NAMES = [
  'header',
  'revision',
  'cluster_id',
  'responses',
  'response_range',
  'kvs',
  'key',
  'value',
  'lease',
  'ID',
  'TTL',
].concat([
  'create_revision',
  'succeeded',
  'error',
  'code',
  'message',
  'Results',
  'Errors',
  'KV',
  'Key',
  'Session',
  'result',
])
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'medium', withCrossShrink: true },
    fc.constantFrom<unknown>(null, true, false, 0, 1, -1, 1e300, '', '1', '0', 'YQ==', '99999999999999999999'),
    fc.string({ maxLength: 10 }),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(fc.constantFrom(...NAMES), tie('json'), { maxKeys: 5 }),
  ),
}))
const body = fc.oneof(
  { weight: 6, arbitrary: json.map((value) => JSON.stringify(value)) },
  fc.string({ unit: 'binary', maxLength: 100 }),
  fc.constantFrom('', '{', '[[[[', 'null', '{}', '[]', `"${'x'.repeat(300_000)}"`, '['.repeat(50_000)),
)
const answer = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .tuple(
        fc.constantFrom(200, 200, 200, 200, 204, 301, 400, 403, 404, 409, 429, 500, 503),
        body,
        fc.constantFrom(0, 0, 0, 7, -1),
      )
      .map(([status, text, more]) => {
        const length = Math.max(0, Buffer.byteLength(text, 'latin1') + more)
        return `HTTP/1.1 ${status} X\r\ncontent-length: ${length}\r\nx-consul-index: 1\r\nconnection: close\r\n\r\n${text}`
      }),
  },
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.constantFrom(
    '',
    'HTTP/1.1',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\nx',
    'HTTP/1.1 999\r\n\r\n',
  ),
)

const ENGINES = {
  etcd: () => etcd(url, { requestTimeout: '200ms' }),
  'etcd with a login': () => etcd(url, { requestTimeout: '200ms', username: 'a', password: 'b' }),
  consul: () => consul(url, { requestTimeout: '200ms' }),
}

/** What was found once. */
const FOUND: Readonly<Record<string, readonly string[][]>> = {
  // The agent is gone when the doctor asks it for the servers' health.
  check: [['\u0000', 'HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\n"1"', 'HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n']],
}

const cases = Object.entries(ENGINES).flatMap(([name, make]) =>
  Object.keys(CALLS).map((call) => [name, call, make] as const),
)

test.each(cases)(
  '%s: whatever a server answers, %s is an answer or an error of ours, and no lease comes out of nothing',
  { timeout: FUZZ_TIMEOUT_MS },
  async (_name, call, make) => {
    const all = fc.array(answer, { minLength: 1, maxLength: 3 })
    const extent = { runs: 20, part: 1 / cases.length, examples: FOUND[call] ?? [] }
    await always(all, extent, async (given) => {
      answers = given
      requests = 0
      expectSaid(given, await tokenFrom(make(), call))
    })
  },
)
