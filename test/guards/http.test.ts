import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  fencedErrors,
  fencedHandler,
  fencedMiddleware,
  fencedOf,
  fencingHeaders,
  problemOf,
  redisGuard,
  type Fenced,
  type HttpGuardOptions,
  type RedisGuard,
} from '../../src/guards/index.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { freshResource, leaseOf } from './suite.ts'

let redisServer: RedisServer
let redis: Redis
let guard: RedisGuard

beforeAll(async () => {
  redisServer = await startRedis()
  redis = new Redis({ host: redisServer.host, port: redisServer.port })
})

beforeEach(() => {
  guard = redisGuard(redis)
})

afterAll(async () => {
  redis?.disconnect()
  await redisServer?.stop()
})

/** The service: keeps what is put under a name, guarded. */
async function put(lease: Fenced, text: string): Promise<string> {
  await guard.set(lease, `kept:${lease.resources[0]}`, text)
  return `kept ${text}`
}

/** One of the two kinds of server, and how to send it something. */
interface Service {
  readonly send: (name: string, headers: Record<string, string>, text?: string) => Promise<Response>
}

type Options = Omit<HttpGuardOptions<never>, 'resource'>

const nameOf = (url: string): string => decodeURIComponent(new URL(url, 'http://service').pathname.slice(1))
const nameInRequest = ({ url }: Request): string => nameOf(url)
const nameInMessage = ({ url = '' }: IncomingMessage): string => nameOf(url)

function fetchService(options: Options): Service {
  const handle = fencedHandler(guard, { resource: nameInRequest, ...options }, async (request, lease) => {
    return new Response(await put(lease, await request.text()))
  })
  return {
    send: (name, headers, text = 'something') =>
      handle(new Request(`http://service/${encodeURIComponent(name)}`, { method: 'PUT', headers, body: text })),
  }
}

let server: Server | undefined

afterEach(async () => {
  const running = server
  server = undefined
  if (running === undefined) return
  running.closeAllConnections()
  await new Promise((resolve) => running.close(resolve))
})

async function listen(listener: (request: IncomingMessage, response: ServerResponse) => void): Promise<Service> {
  const running = createServer(listener)
  server = running
  await new Promise<void>((resolve) => running.listen(0, '127.0.0.1', resolve))
  const { port } = running.address() as AddressInfo
  return {
    send: (name, headers, text = 'something') =>
      fetch(`http://127.0.0.1:${port}/${encodeURIComponent(name)}`, { method: 'PUT', headers, body: text }),
  }
}

/** As Express does it: middlewares in turn, an error goes to the one with four parameters. */
async function nodeService(options: Options): Promise<Service> {
  const middleware = fencedMiddleware(guard, { resource: nameInMessage, ...options })
  const onError = fencedErrors()
  return listen((request, response) => {
    const failed = (error: unknown): void => {
      response.statusCode = 500
      response.end(String(error))
    }
    const handle = async (): Promise<void> => {
      try {
        let text = ''
        for await (const chunk of request) text += String(chunk)
        response.end(await put(fencedOf(request), text))
      } catch (error) {
        onError(error, request, response, failed)
      }
    }
    middleware(request, response, (error) => {
      if (error === undefined) void handle()
      else failed(error)
    })
  })
}

describe.each<[string, (options: Options) => Service | Promise<Service>]>([
  ['a fetch-style handler', fetchService],
  ['a middleware', nodeService],
])('%s', (_kind, starting) => {
  const start = async (options: Options = {}): Promise<Service> => starting(options)

  test('handles what a holder sends, and answers 412 with a problem to an older one', async () => {
    const { send } = await start({ maxToken: 2n ** 62n })
    const name = freshResource()
    const newer = await send(name, fencingHeaders(leaseOf(name, 2n ** 53n + 1n)), 'new')
    expect([newer.status, await newer.text()]).toEqual([200, 'kept new'])
    const older = await send(name, fencingHeaders(leaseOf(name, 2n ** 53n)), 'old')
    expect(older.status).toBe(412)
    expect(older.headers.get('content-type')).toBe('application/problem+json')
    expect(await older.json()).toEqual({
      type: 'urn:ringfence:stale-token',
      title: 'Stale fencing token',
      status: 412,
      detail: `token ${2n ** 53n} of '${name}' is stale: ${2n ** 53n + 1n} was seen; stop: a newer holder has taken over`,
      resource: name,
      token: String(2n ** 53n),
      seen: String(2n ** 53n + 1n),
    })
    expect(await redis.get(`kept:${name}`)).toBe('new')
    expect(guard.rejections).toBe(1)
  })

  test('answers 428 when there is no token, and 400 when there is something else', async () => {
    const { send } = await start()
    const name = freshResource()
    const none = await send(name, {})
    expect(none.status).toBe(428)
    expect(await none.json()).toMatchObject({ type: 'urn:ringfence:token-required', status: 428 })
    const wrong = [
      '',
      'x',
      '-1;engine=a',
      '1',
      '1;engine=',
      '1;engine=%zz',
      '1;engine=%00',
      '1.5;engine=a',
      '9223372036854775808;engine=a',
      '1;engine=a, 2;engine=a',
      `1;engine=${'a'.repeat(300)}`,
    ]
    for (const header of wrong) {
      const answer = await send(name, { 'Fencing-Token': header })
      expect([header, answer.status, ((await answer.json()) as { type: string }).type]).toEqual([
        header,
        400,
        'urn:ringfence:malformed-token',
      ])
    }
    expect(await redis.exists(`kept:${name}`)).toBe(0)
  })

  test('answers 412 to a token of another engine', async () => {
    const { send } = await start()
    const name = freshResource()
    await send(name, fencingHeaders(leaseOf(name, 1n, 'redis:a/ü;x')))
    const foreign = await send(name, fencingHeaders(leaseOf(name, 2n, 'etcd:')))
    expect(foreign.status).toBe(412)
    expect(await foreign.json()).toMatchObject({ type: 'urn:ringfence:foreign-token', resource: name, token: '2' })
  })

  test('answers 412 to another engine than that of the server, also to the first request of a resource', async () => {
    const { send } = await start({ engine: 'redis:' })
    const name = freshResource()
    const foreign = await send(name, fencingHeaders(leaseOf(name, 9n, 'etcd:')))
    expect(foreign.status).toBe(412)
    expect(await foreign.json()).toMatchObject({ type: 'urn:ringfence:foreign-token', resource: name, token: '9' })
    expect((await send(name, fencingHeaders(leaseOf(name, 1n, 'redis:')))).status).toBe(200)
  })

  test('answers 400 to a token that no engine can have reached yet, and the resource can still be used', async () => {
    const { send } = await start()
    const name = freshResource()
    const nowUs = BigInt(Date.now()) * 1000n
    for (const absurd of [2n ** 63n - 1n, nowUs * 1000n, nowUs + 2n * 86_400_000_000n]) {
      const answer = await send(name, fencingHeaders(leaseOf(name, absurd)))
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { type: 'urn:ringfence:implausible-token', token: String(absurd), detail: expect.stringContaining('maxToken') },
      ])
    }
    expect((await send(name, fencingHeaders(leaseOf(name, nowUs)))).status).toBe(200)
    const { send: sendHigher } = await start({ maxToken: 2n ** 63n - 1n })
    expect((await sendHigher(name, fencingHeaders(leaseOf(name, nowUs * 1000n)))).status).toBe(200)
  })

  test('answers 412 when the holder became stale between entering and the write of the handler', async () => {
    const { send } = await start()
    const name = freshResource()
    const enter = guard.enter.bind(guard)
    // A newer holder enters as soon as this one has.
    guard.enter = async (lease) => {
      await enter(lease)
      await enter({ ...lease, token: lease.token + 1n })
    }
    const late = await send(name, fencingHeaders(leaseOf(name, 1n)))
    expect(late.status).toBe(412)
    expect(await late.json()).toMatchObject({ token: '1', seen: '2' })
    expect(await redis.exists(`kept:${name}`)).toBe(0)
  })
})

test('the engine may be left out where the server knows it', async () => {
  const handle = fencedHandler(guard, { resource: () => name, engine: 'redis:' }, (_request, lease) => lease)
  const name = freshResource()
  const request = new Request('http://service/', { headers: { 'Fencing-Token': '7' } })
  expect(await handle(request)).toEqual({ resources: [name], token: 7n, engine: 'redis:' })
})

test('several resources are entered together, and more arguments of the server are passed on', async () => {
  const pair = [freshResource(), freshResource()]
  const handle = fencedHandler(guard, { resource: () => pair }, (_request, _lease, env: string) => env)
  const request = (token: bigint): Request =>
    new Request('http://service/', { headers: fencingHeaders(leaseOf(pair, token)) })
  expect(await handle(request(5n), 'production')).toBe('production')
  await expect(guard.enter(leaseOf(pair[1]!, 4n))).rejects.toMatchObject({ seen: 5n })
})

test('other errors are not swallowed: of the handler, of the store, and of resource()', async () => {
  const error = new Error('of the handler')
  const failing = fencedHandler(guard, { resource: () => 'a' }, () => Promise.reject(error))
  const request = new Request('http://service/', { headers: fencingHeaders(leaseOf('a', 1n)) })
  await expect(failing(request)).rejects.toBe(error)
  const confused = fencedMiddleware(guard, {
    resource: () => {
      throw error
    },
  })
  expect(await new Promise((resolve) => confused({ headers: {} }, {}, resolve))).toBe(error)
  expect(problemOf(error)).toBeUndefined()
})

test('a hook of Fastify is answered through its reply', async () => {
  const hook = fencedMiddleware(guard, { resource: () => 'a' })
  const sent = await new Promise((resolve) => {
    const [status, headers]: [number[], string[][]] = [[], []]
    const reply = {
      code: (code: number) => (status.push(code), reply),
      header: (...header: string[]) => (headers.push(header), reply),
      send: (body: string) => resolve([...status, ...headers, JSON.parse(body).status]),
    }
    hook({ headers: {} }, reply, () => resolve('passed'))
  })
  expect(sent).toEqual([428, ['content-type', 'application/problem+json'], 428])
})

const resource = (): string => 'a'

test('arguments that can not be are refused by name', () => {
  expect(() => fencedHandler({} as never, { resource }, () => undefined)).toThrow('guard: expected a guard')
  expect(() => fencedHandler(guard, {} as never, () => undefined)).toThrow('resource: expected a function')
  expect(() => fencedHandler(guard, { resource }, undefined as never)).toThrow('handler: expected a function')
  expect(() => fencedMiddleware(guard, { resource, engine: '' })).toThrow('engine: expected the identity')
  expect(() => fencedMiddleware(guard, { resource, maxToken: 5 as never })).toThrow('maxToken: expected a bigint')
  expect(() => fencedMiddleware(guard, { resource, header: 'X' } as never)).toThrow("got 'header'")
  expect(() => fencedOf({})).toThrow('request: expected one that has come through fencedMiddleware')
  expect(() => fencingHeaders({} as never)).toThrow(TypeError)
})
