import { Batch, GlideClient } from '@valkey/valkey-glide'
import { Cluster, Redis } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import { createClient, createClientPool, createCluster, createSentinel } from 'redis'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { ioredis, iovalkey } from '../../../src/engines/redis/drivers/ioredis.ts'
import { nodeRedis } from '../../../src/engines/redis/drivers/node-redis.ts'
import { recognise } from '../../../src/engines/redis/drivers/recognise.ts'
import { valkeyGlide } from '../../../src/engines/redis/drivers/valkey-glide.ts'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { addressOf, type Address } from './drivers-clients.ts'

let server: RedisServer
let address: Address

beforeAll(async () => {
  server = await startRedis()
  address = addressOf(server)
})

afterAll(() => server.stop())

const lazy = { lazyConnect: true }
const closed = createClient()
const quiet = (): void => undefined

/**
 * The methods that a package has which is not installed here: of ioredis-mock 8.13.1 (its peer is ioredis 5, so that npm refuses
 * it beside ioredis 6), redis 3 and 4, @upstash/redis 1.
 */
function like(...methods: readonly string[]): object {
  return Object.fromEntries(methods.map((name) => [name, quiet]))
}

describe('what is not a client is refused at once, with a word on the mistake', () => {
  test.each([
    ['nothing', undefined, 'got undefined'],
    ['null', null, 'got null'],
    ['a number', 6379, 'got a number'],
    ['a URL', 'redis://user:secret@localhost', 'not its URL'],
    ['an array', [new Redis(lazy)], 'redlock() takes the array'],
    ['a class', Redis, 'pass an instance'],
    ['options of ioredis', { host: 'localhost', port: 6379 }, 'looks like options'],
    ['options of node-redis', { url: 'redis://user:secret@localhost' }, 'looks like options'],
    ['options of GLIDE', { addresses: [{ host: 'localhost' }] }, 'looks like options'],
    ['a promise', Promise.resolve(new Redis(lazy)), 'await it'],
    ['a pipeline of ioredis', new Redis(lazy).pipeline(), 'pass the client itself'],
    ['a multi of ioredis', new Redis(lazy).multi(), 'pass the client itself'],
    ['a multi of node-redis', closed.multi(), 'pass the client itself'],
    ['a batch of GLIDE', new Batch(false), 'pass the client itself'],
    ['the old interface of node-redis', closed.legacy(), 'legacy()'],
    ['a mock of ioredis', like('on', 'exec', 'pipeline', 'multi', 'duplicate', 'quit'), 'in tests use memory()'],
    ['node-redis 4', like('on', 'multi', 'duplicate', 'sendCommand', 'quit'), 'too old'],
    ['node-redis 3', like('on', 'exec', 'multi', 'duplicate', 'sendCommand', 'send_command', 'quit'), 'too old'],
    ['a client over HTTP', like('exec', 'pipeline', 'multi', 'createScript', 'subscribe'), 'a client over HTTP'],
    ['another object', {}, 'an object of another kind'],
  ])('%s', (_what, value, word) => {
    expect(() => recognise(value)).toThrow(TypeError)
    expect(() => recognise(value)).toThrow(word)
    expect(() => recognise(value)).toThrow('nodeRedis()')
    expect(() => recognise(value)).not.toThrow('secret')
  })

  test('by a named factory too', () => {
    // @ts-expect-error: the types refuse it as well
    expect(() => ioredis(closed)).toThrow(/^ioredis\(client\): expected a Redis or Cluster of ioredis/)
    // @ts-expect-error: the types refuse it as well
    expect(() => iovalkey('redis://localhost')).toThrow('not its URL')
    // @ts-expect-error: the types refuse it as well
    expect(() => nodeRedis(new Redis(lazy))).toThrow(/^nodeRedis\(client\): expected what createClient\(\)/)
    // @ts-expect-error: the types refuse it as well
    expect(() => valkeyGlide(new Batch(true))).toThrow('pass the client itself')
  })
})

describe('options that would make another lock than was asked for are refused', () => {
  test.each([
    ['keyPrefix', new Redis({ ...lazy, keyPrefix: 'app:' }), "client.duplicate({ keyPrefix: '' })"],
    [
      'keyPrefix of a cluster',
      new Cluster([], { ...lazy, keyPrefix: 'a:' }),
      "client.duplicate([], { keyPrefix: '' })",
    ],
    ['keyPrefix of node-redis', createClient({ keyPrefix: 'app:' }), 'without keyPrefix'],
    ['keyPrefix of a pool', createClientPool({ keyPrefix: 'app:' }), 'without keyPrefix'],
    ['readOnly', new Redis({ ...lazy, readOnly: true }), 'reads from a replica'],
    ['readonly of node-redis', createClient({ readonly: true }), 'reads from a replica'],
    ['role', new Redis({ ...lazy, sentinels: [{ host: 'a' }], name: 'x', role: 'slave' }), 'reads from a replica'],
    ['scaleReads', new Cluster([], { ...lazy, scaleReads: 'slave' }), "{ scaleReads: 'master' }"],
    ['monitor', new Redis({ ...lazy, monitor: true }), 'monitor connection'],
  ])('%s', (_what, client, word) => {
    expect(() => recognise(client)).toThrow(TypeError)
    expect(() => recognise(client)).toThrow(word)
  })

  test('readFrom of GLIDE', async () => {
    const client = await GlideClient.createClient({ addresses: [address], readFrom: 'preferReplica' })
    onTestFinished(() => client.close())
    expect(() => recognise(client)).toThrow("readFrom: 'primary'")
  })

  test('a connection in subscriber mode', async () => {
    const redis = new Redis({ ...address, protocol: 2 })
    const valkey = new Valkey(address)
    const node = await createClient({ socket: address, RESP: 2 }).on('error', quiet).connect()
    onTestFinished(() => [redis.disconnect(), valkey.disconnect(), node.destroy()].forEach(quiet))
    await Promise.all([redis.subscribe('a'), valkey.subscribe('a'), node.subscribe('a', quiet)])
    for (const client of [redis, valkey, node]) expect(() => recognise(client)).toThrow('subscriber mode')
  })

  test('but not RESP3, in which a connection can subscribe and run commands', async () => {
    const redis = new Redis(address)
    const node = await createClient({ socket: address }).on('error', quiet).connect()
    onTestFinished(() => [redis.disconnect(), node.destroy()].forEach(quiet))
    await Promise.all([redis.subscribe('a'), node.subscribe('a', quiet)])
    for (const client of [redis, node]) expect(await recognise(client).run(['PING'])).toBe('PONG')
  })
})

describe('a client is recognised by what it can do', () => {
  test('whatever its class is called', () => {
    const a = class extends Redis {}
    const client = recognise(new a(lazy))
    expect([client.driver, client.cluster, client.unusable()]).toEqual(['ioredis', false, undefined])
  })

  test('as itself, when it was wrapped before', () => {
    const redis = new Redis(lazy)
    const wrapped = iovalkey(redis)
    expect(recognise(wrapped)).toBe(wrapped)
    expect(wrapped.identity).toBe(redis)
    expect(wrapped.driver).toBe('iovalkey')
  })

  test.each([
    ['a:1', new Redis('redis://user:secret@a:1/2', lazy)],
    ['/run/redis.sock', new Redis({ ...lazy, path: '/run/redis.sock' })],
    ['sentinel(mymaster)', new Redis({ ...lazy, name: 'mymaster', sentinels: [{ host: 'a' }], password: 'secret' })],
    ['cluster(a:1,localhost:6379,b:6379)', new Cluster(['redis://:secret@a:1', 6379, { host: 'b' }], lazy)],
    ['a:1', createClient({ url: 'redis://user:secret@a:1' })],
    ['/run/redis.sock', createClient({ socket: { path: '/run/redis.sock', tls: false } })],
    ['pool', createClientPool({ url: 'redis://user:secret@a:1' })],
    ['cluster(a:1,b:6379)', createCluster({ rootNodes: [{ url: 'redis://:secret@a:1' }, { socket: { host: 'b' } }] })],
    ['sentinel', createSentinel({ name: 'mymaster', sentinelRootNodes: [{ host: 'a', port: 1 }] })],
  ])('and its label is %s, without a password', (label, client) => {
    expect(recognise(client).label).toBe(label)
  })

  test.each([
    ['client', createClient()],
    ['pool', createClientPool()],
    ['cluster', createCluster({ rootNodes: [] })],
    ['sentinel', createSentinel({ name: 'x', sentinelRootNodes: [{ host: 'localhost', port: 1 }] })],
  ])('a %s of node-redis that was never connected says so', (_kind, client) => {
    expect(recognise(client).unusable()).toContain('never connected: await client.connect()')
  })

  test('one that was closed before it came is not called never connected', async () => {
    const client = await createClient({ socket: address }).on('error', quiet).connect()
    client.destroy()
    expect(recognise(client).unusable()).toContain('closed')
  })
})
