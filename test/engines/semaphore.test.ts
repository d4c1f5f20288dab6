import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { etcd } from '../../src/engines/etcd/index.ts'
import { file } from '../../src/engines/file/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Engine, type Locks, type LocksOptions, type PermitLease } from '../../src/index.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { openPool } from './postgres/clients.ts'
import { collect } from './requests.ts'
import { scriptCalls } from './redis/peers/bench.ts'

interface Servers {
  /** A new engine with connections of its own, as another process has them. Gone with its test. */
  engine(): Engine
  stop(): Promise<unknown>
  /** To count what they are asked. */
  readonly node?: RedisServer
}

function client(url: string): Redis {
  const made = new Redis(url).on('error', () => undefined)
  onTestFinished(() => made.disconnect())
  return made
}

const ENGINES: Record<string, () => Promise<Servers>> = {
  'one Redis': async () => {
    const node = await startRedis()
    return { engine: () => redis(client(node.url)), stop: () => node.stop(), node }
  },
  'a quorum of three': async () => {
    const { urls, stop } = await startRedisNodes(3)
    return { engine: () => redlock(urls.map(client)), stop }
  },
  PostgreSQL: async () => {
    const server = await startPostgres()
    const engine = (): Engine => {
      const pool = openPool({ connectionString: server.url })
      onTestFinished(() => pool.end())
      return postgres(pool)
    }
    return { engine, stop: () => server.stop() }
  },
  etcd: async () => {
    const server = await startEtcd()
    return { engine: () => etcd(server.url), stop: () => server.stop() }
  },
  file: async () => {
    const folder = createFolder('semaphore')
    return { engine: () => file(`${folder}/locks.db`), stop: async () => removeFolder(folder) }
  },
}

describe.each(Object.entries(ENGINES))('%s', (_, start) => {
  let servers: Servers
  beforeAll(async () => {
    servers = await start()
  })
  afterAll(() => servers.stop())

  function process(options: LocksOptions = {}): Locks {
    const locks = createLocks(servers.engine(), { ttl: '30s', wait: '50s', ...options })
    onTestFinished(() => locks.close())
    return locks
  }

  test('never has more holders than permits, and serves all clients', async () => {
    const processes = [process(), process(), process(), process()]
    let inside = 0
    let most = 0
    const numbers = new Set<number>()
    const last = new Map<number, bigint>()
    const work = async ({ permit, token }: PermitLease): Promise<void> => {
      most = Math.max(most, ++inside)
      expect(numbers.has(permit)).toBe(false)
      expect(token).toBeGreaterThan(last.get(permit) ?? 0n)
      numbers.add(permit)
      last.set(permit, token)
      // The first ones stay until there are as many as there may be.
      await until(() => most === 3, { what: 'all permits are held', everyMs: 2 })
      numbers.delete(permit)
      inside--
    }
    const calls = Array.from({ length: 80 }, (_call, index) => processes[index % 4]!.semaphore('crowd', 3).using(work))
    await Promise.all(calls)
    expect(most).toBe(3)
    expect(inside).toBe(0)
    await expect
      .poll(async () =>
        (await collect(processes[0]!.inspect())).filter(({ resource }) => resource.startsWith('crowd#')),
      )
      .toEqual([])
  })

  test('with more permits than it waits at at once, it serves all, for as long as it takes to move on several times', async () => {
    const processes = [process(), process(), process()]
    const inside = new Set<number>()
    let served = 0
    const beganMs = performance.now()
    const caller = async (locks: Locks): Promise<void> => {
      const pool = locks.semaphore('wide', 12)
      while (performance.now() - beganMs < 3500) {
        await pool.using(async ({ permit }) => {
          expect(inside.has(permit)).toBe(false)
          inside.add(permit)
          await new Promise((resolve) => setTimeout(resolve, 20))
          inside.delete(permit)
          served++
        })
      }
    }
    await Promise.all(processes.flatMap((locks) => Array.from({ length: 8 }, () => caller(locks))))
    expect(served).toBeGreaterThan(24)
    expect(inside.size).toBe(0)
  })

  test('a call that finds no permit is told when a holder counts another number of them', async () => {
    const [many, few] = [process(), process()]
    for (let permit = 0; permit < 3; permit++) await many.semaphore('count', 3).acquire({ note: `job ${permit}` })
    const told =
      /^all 2 permits of 'count' were held, by .* \(job \d; pool of 3\).*; a holder counts 3 permits and this process 2: /
    await expect(few.semaphore('count', 2).acquire({ wait: 0 })).rejects.toThrow(told)
    await expect(process().semaphore('count', 3).acquire({ wait: 0 })).rejects.not.toThrow('a holder counts')
    expect(await few.semaphore('count', 4).tryAcquire()).toMatchObject({ permit: 3 })
  })

  test('a wait gets whichever permit comes free, and one that is aborted leaves nothing behind', async () => {
    const [one, two] = [process().semaphore('any', 3), process().semaphore('any', 3)]
    const held = [await one.acquire(), await one.acquire(), await one.acquire()]
    const controller = new AbortController()
    const aborted = two.acquire({ signal: controller.signal })
    const waiting = two.acquire()
    expect(await two.tryAcquire()).toBeNull()
    controller.abort(new Error('changed my mind'))
    await expect(aborted).rejects.toThrow('changed my mind')
    await held[1]!.release()
    const next = await waiting
    expect(next.permit).toBe(held[1]!.permit)
    expect(next.token).toBeGreaterThan(held[1]!.token)
    await Promise.all([held[0]!, held[2]!, next].map((lease) => lease.release()))
    // What was under way when the wait was aborted is undone behind the caller's back.
    const probe = process()
    await expect
      .poll(async () => (await collect(probe.inspect())).filter(({ resource }) => resource.startsWith('any#')))
      .toEqual([])
  })

  test('where the engine serves processes in the order in which they came, so does a pool', async () => {
    const [holder, one, two] = [process(), process(), process()]
    const isInOrder = holder.engine.guarantees.order === 'first come, first served by process'
    const held = [await holder.semaphore('order', 2).acquire(), await holder.semaphore('order', 2).acquire()]
    const waiters = async (): Promise<number[]> => {
      const leases = (await collect(holder.inspect())).filter(({ resource }) => resource.startsWith('order#'))
      return leases.map((lease) => lease.waiters ?? -1)
    }
    const served: string[] = []
    const calls: Promise<unknown>[] = []
    for (const [index, [name, locks]] of Object.entries({ one, two }).entries()) {
      calls.push(locks.semaphore('order', 2).using(() => void served.push(name)))
      await until(async () => !isInOrder || (await waiters()).every((count) => count > index), {
        what: `${name} waits at both permits`,
      })
    }
    await held[1]!.release()
    await Promise.all(calls)
    await held[0]!.release()
    expect(isInOrder ? served : served.toSorted()).toEqual(['one', 'two'])
  })

  test('waits that are aborted at any moment leave neither holders nor places behind', async () => {
    const processes = [process(), process(), process()]
    let inside = 0
    let most = 0
    const calls = Array.from({ length: 90 }, async (_call, index) => {
      const controller = new AbortController()
      const reason = new Error('changed my mind')
      const pool = processes[index % 3]!.semaphore('fickle', 2)
      const using = pool.using({ signal: controller.signal }, async () => {
        most = Math.max(most, ++inside)
        await new Promise((resolve) => setTimeout(resolve, 1))
        inside--
      })
      // Every third one waits until it is served.
      if (index % 3 > 0) setTimeout(() => controller.abort(reason), index)
      return using.then(
        () => 'served',
        (error: unknown) => (error === reason ? 'aborted' : error),
      )
    })
    const outcomes = await Promise.all(calls)
    expect(outcomes.filter((outcome) => outcome !== 'aborted' && outcome !== 'served')).toEqual([])
    expect(outcomes.filter((_outcome, index) => index % 3 === 0)).toEqual(Array.from({ length: 30 }, () => 'served'))
    expect(most).toBeLessThanOrEqual(2)
    await expect
      .poll(async () =>
        (await collect(processes[0]!.inspect())).filter(({ resource }) => resource.startsWith('fickle#')),
      )
      .toEqual([])
    // Nobody in line is in the way of a newcomer.
    const pool = process().semaphore('fickle', 2)
    await expect.poll(async () => (await pool.tryAcquire()) !== null).toBe(true)
    await expect.poll(async () => (await pool.tryAcquire()) !== null).toBe(true)
  })

  test('the permit of a holder that is gone comes back when its ttl is over', async () => {
    const [gone, others] = [process(), process()]
    const lost = await gone.semaphore('gone', 2).acquire({ ttl: '2s', renew: false })
    const kept = await gone.semaphore('gone', 2).acquire()
    const next = await others.semaphore('gone', 2).acquire()
    expect(next.permit).toBe(lost.permit)
    expect(next.token).toBeGreaterThan(lost.token)
    expect([lost.held, kept.held]).toEqual([false, true])
  })

  test('of a thousand permits half are free: one is found by one or two attempts', async () => {
    const others = process()
    await others.semaphore('many', 1000).acquire()
    const filled = others.semaphore('many', 1000)
    await Promise.all(Array.from({ length: 499 }, () => filled.acquire()))
    let attempts = 0
    const locks = process({ observe: ({ type }) => void (attempts += type === 'attempt' ? 1 : 0) })
    await locks.using('warm', () => undefined)
    const { node } = servers
    const asked = async (): Promise<number> => (node === undefined ? attempts : scriptCalls(node))
    const counts: number[] = []
    for (let round = 0; round < 41; round++) {
      const before = await asked()
      // A semaphore of its own each time: nothing is remembered.
      const lease = await locks.semaphore('many', 1000).acquire()
      counts.push((await asked()) - before)
      await lease.release()
    }
    counts.sort((some, other) => some - other)
    expect(counts[20]).toBeGreaterThanOrEqual(1)
    expect(counts[20]).toBeLessThanOrEqual(2)
  })
})
