import { Redis } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import { createClient } from 'redis'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { ioredis, iovalkey, nodeRedis, redis } from '../../../src/engines/redis/index.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { addressOf, SINGLE, type Connected } from './drivers-clients.ts'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'

const kinds = Object.entries(SINGLE)

let server: RedisServer
/** Asks the server what is there, holds what is waited for, and publishes. */
let other: Connected

beforeAll(async () => {
  server = await startRedis()
  other = await SINGLE['node-redis']!(addressOf(server))
})

afterAll(async () => {
  await other.close()
  await server.stop()
})

test.each(kinds)(
  '%s: a waiter that comes while the subscription of the one before is being ended is told',
  async (name, connect) => {
    await using proxy = await startProxy(server.port)
    const { client, close } = await connect(addressOf(proxy))
    const subscriber = client.subscriber(systemClock, systemRandom)
    const channel = `again: ${name}`
    const heard: string[] = []
    await subscriber?.subscribe(channel, () => undefined)
    // The answer to UNSUBSCRIBE is on its way for this long.
    proxy.delay(100, 'replies')
    const ended = subscriber?.unsubscribe(channel)
    await subscriber?.subscribe(channel, (message) => heard.push(message))
    await ended
    proxy.delay(0)
    expect(await other.client.run(['PUBLISH', channel, 'x'])).toBe(1)
    await until(() => heard.length > 0, { what: 'the message was heard' })
    await subscriber?.close()
    await close()
  },
)

test("node-redis: the user's pingInterval holds for the subscriber connection, too", async () => {
  const client = await createClient({ socket: addressOf(server), pingInterval: 50 }).connect()
  const duplicated = vi.spyOn(client, 'duplicate')
  const subscriber = nodeRedis(client).subscriber(systemClock, systemRandom)
  await subscriber?.subscribe('pinged', () => undefined)
  const copy = duplicated.mock.results[0]!.value as typeof client
  let pings = 0
  // Not emitted for a PING that was asked for.
  copy.on('ping-interval', () => pings++)
  await until(() => pings > 1, { what: 'the connection is pinged' })
  await subscriber?.close()
  client.destroy()
})

// These wait for seconds, each on connections of its own.
test.concurrent('a subscriber connection that dies without a word is replaced, and the gap is told', async () => {
  await withEach(async (name, { client }, proxy) => {
    const subscriber = client.subscriber(systemClock, systemRandom)
    const seen = { gaps: 0, heard: 0 }
    subscriber?.onGap((channel) => {
      expect(channel).toBe(name)
      seen.gaps++
    })
    await subscriber?.subscribe(name, () => seen.heard++)
    proxy.forget('subscribe')
    await until(() => seen.gaps > 0, { what: `${name}: the gap was told`, withinMs: 20_000 })
    // The server still has the connection that died, and now a second one.
    expect(await other.client.run(['PUBLISH', name, 'x'])).toBe(2)
    await until(() => seen.heard > 0, { what: `${name}: the message was heard` })
    expect(seen).toEqual({ gaps: 1, heard: 1 })
    await subscriber?.close()
  })
})

test.concurrent('a subscriber connection ends when nobody has waited for some seconds, and the next waiter has another one', async () => {
  await withEach(async (name, { client }, proxy) => {
    await client.run(['PING'])
    const before = proxy.connections
    const subscriber = client.subscriber(systemClock, systemRandom)
    let heard = 0
    await subscriber?.subscribe(name, () => undefined)
    expect(proxy.connections).toBeGreaterThan(before)
    await subscriber?.unsubscribe(name)
    await until(() => proxy.connections === before, { what: `${name}: the connection is gone` })
    await subscriber?.subscribe(name, () => heard++)
    await other.client.run(['PUBLISH', name, 'x'])
    await until(() => heard === 1, { what: `${name}: the message was heard` })
    await subscriber?.close()
  })
})

test.concurrent('thirty locks on one client that have waited leave its one connection, also when none of them is closed', async () => {
  await using proxy = await startProxy(server.port)
  const client = new Redis(addressOf(proxy))
  await client.ping()
  const held = await createLocks(redis(other.client)).acquire('thirty', { ttl: '1m' })
  const turns = Array.from({ length: 30 }, () =>
    createLocks(redis(client)).using('thirty', { wait: '1m' }, () => 'done'),
  )
  await until(() => proxy.connections === 31, { what: 'all of them listen' })
  await held.release()
  expect(new Set(await Promise.all(turns))).toEqual(new Set(['done']))
  await until(() => proxy.connections === 1, { what: 'their connections are gone' })
  client.disconnect()
})

test.concurrent('a user who may not PING keeps the subscriber connection: a refusal is an answer', async () => {
  const acl = ['quiet on >secret ~* &* +@all -ping']
  await using guarded = await startRedis({ acl })
  const login = { username: 'quiet', password: 'secret' }
  const clients = [
    ioredis(new Redis({ ...addressOf(guarded), ...login })),
    iovalkey(new Valkey({ ...addressOf(guarded), ...login })),
    nodeRedis(await createClient({ socket: addressOf(guarded), ...login }).connect()),
  ]
  let gaps = 0
  const subscribers = clients.map((client) => client.subscriber(systemClock, systemRandom)!)
  for (const subscriber of subscribers) {
    subscriber.onGap(() => gaps++)
    await subscriber.subscribe('a', () => undefined)
  }
  const rejected = async (): Promise<number> =>
    Number(/cmdstat_ping:.*rejected_calls=(\d+)/.exec(await guarded.cli('INFO', 'commandstats'))?.[1] ?? 0)
  // Twice each: after the first one, a lost connection would be another one.
  await until(async () => (await rejected()) >= 2 * clients.length, { what: 'each was refused', everyMs: 100 })
  expect(gaps).toBe(0)
  for (const subscriber of subscribers) await subscriber.close()
  for (const { identity } of clients) await (identity as { quit(): Promise<unknown> }).quit()
})

/** All kinds of clients at the same time, since most of each test is waiting. */
function withEach<T>(work: (name: string, connected: Connected, proxy: Proxy) => Promise<T>): Promise<T[]> {
  const each = kinds.map(async ([name, connect]) => {
    await using proxy = await startProxy(server.port)
    const connected = await connect(addressOf(proxy))
    const result = await work(name, connected, proxy)
    await connected.close()
    return result
  })
  return Promise.all(each)
}
