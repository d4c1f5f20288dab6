import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startRedis, type RedisOptions, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import type { Engine } from '../../../src/engine.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startQuorum } from './faults-quorum.ts'

interface Bench extends AsyncDisposable {
  readonly server: RedisServer
  readonly engines: Engine[]
  /** Locks as another process would have them. */
  locks(user?: string): Locks
}

async function startBench(options: RedisOptions = {}): Promise<Bench> {
  const server = await startRedis(options)
  const all: { locks: Locks; client: Redis }[] = []
  const engines: Engine[] = []
  return {
    server,
    engines,
    locks(user) {
      const url = user === undefined ? server.url : server.url.replace('//', `//${user}@`)
      const client = new Redis(url).on('error', () => undefined)
      const engine = redis(client)
      engines.push(engine)
      const locks = createLocks(engine, { ttl: '20s' })
      all.push({ locks, client })
      return locks
    },
    async [Symbol.asyncDispose]() {
      for (const { locks, client } of all) await locks.close().finally(() => client.disconnect())
      await server.stop()
    },
  }
}

function inLine(server: RedisServer, resource: string): Promise<number> {
  return server.cli('ZCOUNT', `ringfence:line:{${resource}}`, '(0', '+inf').then(Number, () => 0)
}

async function calls(server: RedisServer): Promise<Record<string, number>> {
  const text = await server.cli('INFO', 'commandstats')
  return Object.fromEntries(
    [...text.matchAll(/cmdstat_(\w+):calls=(\d+)/g)].map(([, name, count]) => [name!, Number(count)]),
  )
}

test('an uncontended lease takes as many commands as without a line, and one look at the line in its release', async () => {
  await using bench = await startBench()
  const locks = bench.locks()
  // So that the scripts are loaded.
  await locks.using('other', async () => undefined)
  await bench.server.cli('CONFIG', 'RESETSTAT')
  await locks.using('order', async () => undefined)
  const { evalsha, eval: evals, zrangebyscore, ...others } = await calls(bench.server)
  expect({ evalsha, evals, zrangebyscore }).toEqual({ evalsha: 2, evals: undefined, zrangebyscore: 1 })
  expect(Object.keys(others).filter((name) => name.startsWith('z'))).toEqual([])
})

test('those who wait for several resources are neither overtaken for ever nor block each other', async () => {
  await using bench = await startBench()
  const processes = Array.from({ length: 4 }, () => bench.locks())
  const wanted = [['a'], ['b'], ['a', 'b'], ['b', 'c', 'a']]
  const done = wanted.map(() => 0)
  let held = new Set<string>()
  /** What the slowest had done when the first was through. */
  let behind = 25
  await Promise.all(
    processes.map(async (locks, index) => {
      while (done[index]! < 25) {
        await locks.using(wanted[index]!, { wait: '60s' }, async () => {
          expect(wanted[index]!.filter((name) => held.has(name))).toEqual([])
          held = new Set([...held, ...wanted[index]!])
          await new Promise(setImmediate)
          held = new Set([...held].filter((name) => !wanted[index]!.includes(name)))
        })
        done[index]!++
        behind = Math.min(behind, done[index] === 25 ? Math.min(...done) : 25)
      }
    }),
  )
  expect(done).toEqual([25, 25, 25, 25])
  expect(behind).toBeGreaterThan(3)
})

test('on a quorum, too', { timeout: 60_000 }, async () => {
  await using quorum = await startQuorum({}, 3)
  const processes = Array.from({ length: 3 }, () => quorum.locks({ ttl: '20s' }))
  const wanted = [['a'], ['a', 'b'], ['b']]
  const done = wanted.map(() => 0)
  await Promise.all(
    processes.map(async (locks, index) => {
      while (done[index]! < 15) {
        await locks.using(wanted[index]!, { wait: '50s' }, async () => undefined)
        done[index]!++
      }
    }),
  )
  expect(done).toEqual([15, 15, 15])
})

test.each([
  ['may not use sorted sets', 'waiter on nopass ~* &* +@all -@sortedset'],
  ['may not join a line', 'waiter on nopass ~* &* +@all -zadd'],
  ['may not leave a line', 'waiter on nopass ~* &* +@all -zrem'],
  ['may not look at a line', 'waiter on nopass ~* &* +@all -zrangebyscore'],
  ['may not use the keys of the lines', 'waiter on nopass ~order ~ringfence:fence:* &* +@all'],
])('a user that %s waits as before', async (_what, rule) => {
  await using bench = await startBench({ acl: [rule] })
  const [holder, waiter] = [bench.locks(), bench.locks('waiter')]
  const lease = await holder.acquire('order')
  const waiting = waiter.acquire('order', { wait: '20s' })
  await until(async () => (await bench.server.cli('PUBSUB', 'NUMSUB', 'ringfence:freed:{order}')).includes('1'), {
    what: 'it listens',
  })
  await lease.release()
  const second = await waiting
  expect(second.token).toBeGreaterThan(lease.token)
  expect(await inLine(bench.server, 'order')).toBe(0)
  expect(await second.release()).toBe(true)
})

test('a release of a process that knows no lines is noticed', async () => {
  await using bench = await startBench()
  const [holder, waiter] = [bench.locks(), bench.locks()]
  const lease = await holder.acquire('order')
  const waiting = waiter.acquire('order', { wait: '20s' })
  await until(async () => (await inLine(bench.server, 'order')) === 1, { what: 'it is in line' })
  await until(async () => (await bench.server.cli('PUBSUB', 'NUMSUB', 'ringfence:freed:{order}')).includes('1'), {
    what: 'it listens',
  })
  // What the release of an earlier version does.
  await bench.server.cli('DEL', 'order')
  await bench.server.cli('PUBLISH', 'ringfence:freed:{order}', 'its owner')
  expect((await waiting).token).toBeGreaterThan(lease.token)
})

test('a lock that a person releases goes to the first in line', async () => {
  await using bench = await startBench()
  const [holder, waiter, person] = [bench.locks(), bench.locks(), bench.locks()]
  const lease = await holder.acquire('order')
  const waiting = waiter.acquire('order', { wait: '20s' })
  await until(async () => (await inLine(bench.server, 'order')) === 1, { what: 'it is in line' })
  void person
  for await (const info of bench.engines[2]!.inspect('order')) {
    expect(info).toMatchObject({ owner: lease.owner, waiters: 1, line: [{ since: expect.any(Number) }] })
    await bench.engines[2]!.release({ ...info, resources: ['order'], ttlMs: 10_000 })
  }
  expect((await waiting).token).toBeGreaterThan(lease.token)
})

test('who comes after a caller that has given up is served by when its own wait began', async () => {
  await using bench = await startBench()
  const [holder, first, second] = [bench.locks(), bench.locks(), bench.locks()]
  const held = await holder.acquire('order')
  const order: string[] = []
  const served = async (name: string, locks: Locks): Promise<void> => {
    const lease = await locks.acquire('order', { wait: '60s' })
    order.push(name)
    await lease.release()
  }
  const giveUp = new AbortController()
  const gone = first.acquire('order', { wait: '60s', signal: giveUp.signal }).catch(() => undefined)
  await until(async () => (await inLine(bench.server, 'order')) === 1, { what: 'one in line' })
  const waiting = async (): Promise<string[]> =>
    (await bench.server.cli('ZRANGEBYSCORE', 'ringfence:line:{order}', '(0', '+inf')).trim().split('\n')
  const [before] = await waiting()
  const one = served('first', first)
  const two = served('second', second)
  await until(async () => (await inLine(bench.server, 'order')) === 2, { what: 'two in line' })
  giveUp.abort()
  await gone
  const isNext = async (): Promise<boolean> => {
    const owners = await waiting()
    return owners.length === 2 && !owners.includes(before!)
  }
  await until(isNext, { what: 'the next one has come' })
  await held.release()
  await Promise.all([one, two])
  expect(order).toEqual(['first', 'second'])
})

test('who has won with a majority stands in line on no node any more, also where its claim was refused', async () => {
  await using quorum = await startQuorum({}, 3)
  const [holder, next] = [quorum.locks({ ttl: '20s' }), quorum.locks({ ttl: '20s' })]
  const held = await holder.acquire('order')
  const third = quorum.nodes[2]!
  await until(async () => (await third.cli('GET', 'order')) === held.owner, { what: 'the third node has it, too' })
  await third.cli('SET', 'order', 'someone else', 'PX', '60000')
  const waiting = next.acquire('order', { wait: '50s' })
  await until(async () => (await inLine(third, 'order')) === 1, { what: 'one in line there' })
  await held.release()
  const lease = await waiting
  expect(lease.held).toBe(true)
  await until(async () => (await inLine(third, 'order')) === 0, { what: 'nobody in line there' })
})

test('a claim that fails is an error of the engine, not a resource that is held', async () => {
  await using bench = await startBench()
  const [holder, next] = [bench.locks(), bench.locks()]
  const held = await holder.acquire('order')
  const waiting = next.acquire('order', { wait: '50s' }).catch((error: unknown) => error)
  await until(async () => (await inLine(bench.server, 'order')) === 1, { what: 'one in line' })
  await bench.server.cli('DEL', 'ringfence:fence:{order}')
  await bench.server.cli('LPUSH', 'ringfence:fence:{order}', 'a list')
  await held.release()
  expect(await waiting).toMatchObject({ code: 'ENGINE', message: expect.stringContaining('WRONGTYPE') })
  await until(async () => (await bench.server.cli('EXISTS', 'order')) === '0', { what: 'nothing of it is left' })
})
