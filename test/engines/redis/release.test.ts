import { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { lockKeys } from './faults-quorum.ts'

/** As Redis 7 makes a user who was given all keys and commands, and no channels. */
const NO_CHANNELS = 'bob on nopass ~* resetchannels +@all'

interface Setup extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  /** Of a user of their own. */
  locks(username?: string): Locks
  /** The same command on every node. */
  onEach(...command: string[]): Promise<void>
  /** Makes it a key of another type on every node, also where a step of the lease before arrives meanwhile. */
  spoil(key: string): Promise<void>
}

describe.each([1, 3])('on %d nodes', (size) => {
  test('who may not publish still gives back everything, and is not told of a failure', async () => {
    await using it = await start(size)
    const locks = it.locks('bob')
    expect(await locks.using(['a', 'b', 'c'], () => 'done')).toBe('done')
    await it.free()
    const lease = await locks.acquire(['a', 'b', 'c'])
    expect(await lease.release()).toBe(true)
    const alone = await locks.acquire('a')
    expect(await alone.release()).toBe(true)
    await it.free()
  })

  test('a waiter of another process gets what was released without a word, long before its ttl', async () => {
    await using it = await start(size)
    const held = await it.locks('bob').acquire('a', { ttl: '60s' })
    const waiting = it.locks('bob').acquire('a', { wait: '30s' })
    await held.release()
    await using next = await waiting
    expect(next.held).toBe(true)
  })

  test('a key of another type among them does not keep the others locked, and the result is not handed out', async () => {
    await using it = await start(size)
    const locks = it.locks()
    const spoil = (): Promise<void> => it.spoil('b')
    const lease = await locks.acquire(['a', 'b', 'c'])
    await spoil()
    expect(await lease.release()).toBe(false)
    await it.free('b')
    await it.onEach('DEL', 'b')
    await expect(locks.using(['a', 'b', 'c'], spoil)).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'unnoticed' })
    await it.free('b')
  })

  test('a lock of other software whose value is empty is held, for writers, readers and those in line', async () => {
    await using it = await start(size)
    const locks = it.locks()
    await it.onEach('SET', 'b', '', 'PX', '60000', 'NX')
    for (const options of [{}, { shared: true }]) {
      expect(await locks.tryAcquire('b', options)).toBeNull()
      expect(await locks.tryAcquire(['a', 'b'], options)).toBeNull()
    }
    await it.free('b')
    let isFree = false
    const waiting = locks.acquire(['a', 'b'], { wait: '30s' }).then((lease) => ({ lease, wasFree: isFree }))
    expect(await locks.tryAcquire(['b', 'c'])).toBeNull()
    isFree = true
    await it.onEach('DEL', 'b')
    const { lease, wasFree } = await waiting
    expect([lease.held, wasFree]).toEqual([true, true])
    await lease.release()
  })

  test('a counter of another type does not keep anything locked', async () => {
    await using it = await start(size)
    const lease = await it.locks().acquire(['a', 'b', 'c'])
    await it.spoil('ringfence:fence:{b}')
    expect(await lease.release()).toBe(true)
    await it.free()
  })

  test('a lease whose key became one of another type is not handed to the next in line', async () => {
    await using it = await start(size)
    const locks = it.locks()
    const lease = await locks.acquire('a')
    const waiting = locks.acquire('a', { wait: '20s' })
    await it.spoil('a')
    expect(await lease.release()).toBe(false)
    await expect(waiting).rejects.toMatchObject({ code: expect.stringMatching(/ENGINE|QUORUM/) })
  })

  test('inspect shows a lock key of another type as what it is, and all the others', async () => {
    await using it = await start(size)
    const locks = it.locks()
    const [first, last] = [await locks.acquire('a'), await locks.acquire('c')]
    await (await locks.acquire('b')).release()
    await it.spoil('b')
    const owners: Record<string, string> = {}
    for await (const { resource, owner } of locks.inspect()) owners[resource] = owner
    expect(owners).toEqual({ a: first.owner, b: '(a key of another type)', c: last.owner })
  })
})

async function isSpoilt(node: RedisServer, key: string): Promise<boolean> {
  await node.cli('DEL', key)
  return (await node.cli('RPUSH', key, 'a list')) === '1'
}

async function start(size: number): Promise<Setup & { free(but?: string): Promise<void> }> {
  const { nodes, stop } = await startRedisNodes(size, { acl: [NO_CHANNELS] })
  const closing: (() => Promise<void>)[] = []
  const onEach = async (...command: string[]): Promise<void> => {
    for (const node of nodes) await node.cli(...command)
  }
  return {
    nodes,
    onEach,
    async spoil(key) {
      for (const node of nodes)
        await until(() => isSpoilt(node, key).catch(() => false), { what: `${key} is of another type` })
    },
    locks(username) {
      const user = username === undefined ? {} : { username, password: 'any' }
      const clients = nodes.map(({ host, port }) => new Redis({ host, port, ...user }))
      const locks = createLocks(size === 1 ? redis(clients[0]) : redlock(clients), { ttl: '30s' })
      closing.push(async () => {
        await locks.close()
        for (const client of clients) client.disconnect()
      })
      return locks
    },
    /** No lock key is left on any node. A quorum does not wait for its slowest nodes. */
    async free(but) {
      const left = but === undefined ? [] : [but]
      const keys = async (): Promise<string[][]> => Promise.all(nodes.map(lockKeys))
      const wanted = JSON.stringify(nodes.map(() => left))
      await until(async () => JSON.stringify(await keys()) === wanted, { what: `no lock but ${but}`, withinMs: 10_000 })
    },
    async [Symbol.asyncDispose]() {
      for (const close of closing) await close()
      await stop()
    },
  }
}
