import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { isNoScript, isPermanent } from '../../../src/engines/redis/drivers/server-errors.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { addressOf, SINGLE, type Connected } from './drivers-clients.ts'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'

// The drivers that were made for Valkey are tried with it, the others with Redis: the protocol is the same.
const kinds = Object.entries(SINGLE).map(([name, connect]) => {
  const valkey = isAvailable('valkey') && ['iovalkey', 'GLIDE'].includes(name)
  return { name: `${name}, ${valkey ? 'Valkey' : 'Redis'}`, connect, flavour: { valkey } }
})

describe.each(kinds)('$name', ({ connect, flavour }) => {
  let server: RedisServer
  let connected: Connected

  beforeAll(async () => {
    server = await startRedis(flavour)
    connected = await connect(addressOf(server))
  })

  afterAll(async () => {
    await connected.close()
    await server.stop()
  })

  test('replies come as strings, numbers, lists and null, whatever the options of the client', async () => {
    const { client } = connected
    const mixed = "return {1, 'x', '3', false, {2, '4'}, redis.status_reply('fine')}"
    expect(await client.run(['EVAL', mixed, '1', 'key'], 'key')).toEqual([1, 'x', '3', null, [2, '4'], 'fine'])
    expect(await client.run(['SET', 'key', '12'], 'key')).toBe('OK')
    expect(await client.run(['GET', 'key'], 'key')).toBe('12')
    expect(await client.run(['EXISTS', 'key'], 'key')).toBe(1)
    expect(await client.run(['GET', 'nothing'], 'nothing')).toBeNull()
    expect(await client.run(['INFO', 'server'])).toContain('tcp_port')
    expect(await client.run(['CONFIG', 'GET', 'maxmemory'])).toEqual(['maxmemory', '0'])
  })

  test('commands sent together use one connection, in order', async () => {
    const commands = [
      ['CLIENT', 'ID'],
      ['SET', 'key', 'v'],
      ['WAIT', '0', '10'],
      ['GET', 'key'],
      ['CLIENT', 'ID'],
    ]
    const [first, set, wait, get, last] = await connected.client.runTogether(commands, 'key')
    expect([set, wait, get]).toEqual(['OK', 0, 'v'])
    expect(first).toBeTypeOf('number')
    expect(last).toBe(first)
  })

  test('one that fails among those sent together is the error of all', async () => {
    const commands = [
      ['EVALSHA', 'f'.repeat(40), '0'],
      ['WAIT', '0', '10'],
    ]
    await expect(connected.client.runTogether(commands, 'key')).rejects.toSatisfy(isNoScript)
  })

  test('a script that the server does not have is told from other errors, which are permanent or not', async () => {
    const { client } = connected
    const failure = (...command: string[]): Promise<unknown> => client.run(command, 'key').catch((error) => error)
    await client.run(['SET', 'key', 'v'], 'key')
    const missing = await failure('EVALSHA', 'f'.repeat(40), '0')
    expect(missing).toBeInstanceOf(Error)
    expect([isNoScript(missing), isPermanent(missing)]).toEqual([true, false])
    for (const permanent of [
      await failure('LPUSH', 'key', 'v'),
      await failure('NOSUCHCOMMAND', 'key'),
      await failure('EVAL', "return redis.call('LPUSH', KEYS[1], 'v')", '1', 'key'),
      await failure('EVAL', "return redis.error_reply('NOPERM no permission')", '0'),
    ]) {
      expect(permanent).toBeInstanceOf(Error)
      expect([isNoScript(permanent), isPermanent(permanent)]).toEqual([false, true])
    }
    const readonly = await failure('EVAL', "return redis.error_reply('READONLY You can not write')", '0')
    expect(isPermanent(readonly)).toBe(false)
  })

  test('a single server is its one master', async () => {
    const masters = await connected.client.masters()
    expect(masters.map(({ label }) => label)).toEqual([`${server.host}:${server.port}`])
    expect(await masters[0]?.run(['TIME'])).toEqual([expect.any(String), expect.any(String)])
  })

  test('a subscription is heard from its confirmation to its end, on a connection that ends with the subscriber', async () => {
    const { client } = connected
    const before = await connections(server)
    const subscriber = client.subscriber(systemClock, systemRandom)
    expect(await connections(server)).toBe(before)
    const heard: string[] = []
    await subscriber?.subscribe('a', () => heard.push('a'))
    await subscriber?.subscribe('b', () => heard.push('b'))
    await client.run(['PUBLISH', 'a', '1'])
    await client.run(['PUBLISH', 'b', '1'])
    await until(() => heard.length === 2, { what: 'both messages were heard' })
    await subscriber?.unsubscribe('a')
    expect(await client.run(['PUBLISH', 'a', '2'])).toBe(0)
    expect(await client.run(['PUBLISH', 'b', '2'])).toBe(1)
    await until(() => heard.length === 3, { what: 'the other message was heard' })
    expect(heard).toEqual(['a', 'b', 'b'])
    await subscriber?.close()
    await until(async () => (await connections(server)) === before, { what: 'the connection is gone' })
    await expect(subscriber?.subscribe('c', () => undefined)).rejects.toThrow('closed')
  })

  test('a lease is waited for while another one has it, and had after its release', async () => {
    const [ours, theirs] = [createLocks(redis(connected.client)), createLocks(redis(connected.client))]
    const held = await theirs.acquire('order', { ttl: '1m' })
    const waiting = ours.acquire('order', { wait: '20s' })
    await until(async () => (await server.cli('PUBSUB', 'CHANNELS')).includes('{order}'), { what: 'it is waited for' })
    expect(await held.release()).toBe(true)
    const lease = await waiting
    expect(lease.token).toBeGreaterThan(held.token)
    expect(await lease.release()).toBe(true)
    expect(await server.cli('EXISTS', 'order')).toBe('0')
    await ours.close()
    await theirs.close()
  })

  test('a restart of the server is told as a gap when the subscriptions are back', async () => {
    const subscriber = connected.client.subscriber(systemClock, systemRandom)
    let heard = 0
    let gaps = 0
    subscriber?.onGap(() => gaps++)
    await subscriber?.subscribe('a', () => heard++)
    await server.kill()
    await server.restart()
    await until(() => gaps === 1, { what: 'the gap was told' })
    await server.cli('PUBLISH', 'a', 'x')
    await until(() => heard > 0, { what: 'the message was heard' })
    expect({ heard, gaps }).toEqual({ heard: 1, gaps: 1 })
    await subscriber?.close()
  })

  test('a subscription to a server that is away fails, and leaves nothing behind', async () => {
    const subscriber = connected.client.subscriber(systemClock, systemRandom)
    await server.kill()
    await expect(subscriber?.subscribe('a', () => undefined)).rejects.toThrow(Error)
    await subscriber?.close()
    await server.restart()
    await until(() => connected.client.run(['PING']), { what: 'the client is back' })
    await until(async () => (await server.cli('PUBSUB', 'CHANNELS')) === '', { what: 'nobody listens' })
  })

  test('a closed client says so', async () => {
    expect(connected.client.unusable()).toBeUndefined()
    await connected.close()
    await until(() => connected.client.unusable(), { what: 'it says so' })
    expect(connected.client.unusable()).toContain('closed')
    await expect(connected.client.run(['PING'])).rejects.toBeInstanceOf(Error)
  })
})

async function connections(server: RedisServer): Promise<number> {
  const list = await server.cli('CLIENT', 'LIST')
  // The one that asks is not counted.
  return list.split('\n').filter((line) => line.includes('id=') && !line.includes('cmd=client')).length
}
