import { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import type { Engine } from '../../src/engine.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'

const TTL_MS = 4000
const OPTIONS = { requestTimeout: '1s', maxTtl: '20s' } as const

interface Reply {
  readonly type: string
  readonly [field: string]: unknown
}

/** Servers, locks of this process, and other processes that read what it reads. */
interface Readers extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  readonly locks: Locks
  /** Another process has `order`, shared, for a ttl of 4 s that it renews. */
  reader(driver: 'ioredis' | 'node-redis'): Promise<Worker<Reply>>
  holders(): Promise<readonly string[]>
}

async function startReaders(name: 'redis' | 'redlock'): Promise<Readers> {
  const { nodes, stop } = await startRedisNodes(name === 'redis' ? 1 : 3)
  const clients = nodes.map(({ port }) => new Redis({ host: '127.0.0.1', port }).on('error', () => undefined))
  const engine: Engine = name === 'redis' ? redis(clients[0]) : redlock(clients, OPTIONS)
  const locks = createLocks(engine, { ttl: '20s' })
  const workers: Worker<Reply>[] = []
  return {
    nodes,
    locks,
    async reader(driver) {
      const ports = nodes.map(({ port }) => port)
      const env = {
        RINGFENCE_PORT: String(ports[0]),
        RINGFENCE_PORTS: ports.join(','),
        RINGFENCE_DRIVER: driver,
        RINGFENCE_REDLOCK_OPTIONS: JSON.stringify(OPTIONS),
      }
      const args = [name, String(TTL_MS)]
      const worker = startWorker<Reply>(new URL('./workers/puppet.mjs', import.meta.url), { args, env })
      workers.push(worker)
      await worker.next(({ type }) => type === 'ready', { withinMs: 40_000, what: 'sign of life' })
      worker.send({ id: 1, call: 'acquire', resource: 'order', shared: true })
      expect(await worker.next(({ id }) => id === 1, { withinMs: 40_000 })).toMatchObject({ granted: true })
      return worker
    },
    async holders() {
      const owners: string[] = []
      for await (const { owner, shared } of engine.inspect('order')) owners.push(`${owner} ${shared === true}`)
      return owners
    },
    async [Symbol.asyncDispose]() {
      for (const worker of workers) await worker[Symbol.asyncDispose]()
      await locks.close()
      for (const client of clients) client.disconnect()
      await stop()
    },
  }
}

async function state(worker: Worker<Reply>): Promise<Reply> {
  worker.send({ id: 9, call: 'state', resource: 'order' })
  return worker.next(({ id }) => id === 9, { withinMs: 40_000 })
}

describe.each(['redis', 'redlock'] as const)('processes that share on %s', (name) => {
  test('one that is killed ends alone, and the last one lets a writer in', { timeout: 120_000 }, async () => {
    await using readers = await startReaders(name)
    const here = await readers.locks.acquire('order', { shared: true })
    const [killed, other] = [await readers.reader('ioredis'), await readers.reader('node-redis')]
    expect(await readers.holders()).toHaveLength(3)
    await killed.kill()
    const writer = readers.locks.acquire('order', { wait: '60s' })
    await until(async () => (await readers.holders()).length === 2, { what: 'the killed one is over' })
    expect(await here.release()).toBe(true)
    expect(await state(other)).toMatchObject({ held: true, aborted: false })
    other.send({ id: 2, call: 'release', resource: 'order' })
    expect(await other.next(({ id }) => id === 2, { withinMs: 40_000 })).toMatchObject({ ours: true })
    expect((await writer).token).toBeGreaterThan(here.token)
    expect(await readers.holders()).toEqual([`${(await writer).owner} false`])
  })

  test('when all are killed, a writer gets in without them', { timeout: 120_000 }, async () => {
    await using readers = await startReaders(name)
    const workers = [await readers.reader('ioredis'), await readers.reader('ioredis')]
    for (const worker of workers) await worker.kill()
    await using writer = await readers.locks.acquire('order', { wait: '60s' })
    expect(writer.held).toBe(true)
  })

  test('one that is frozen past its ttl has lost its lease, and sees it at once', { timeout: 120_000 }, async () => {
    await using readers = await startReaders(name)
    const frozen = await readers.reader('ioredis')
    const here = await readers.locks.acquire('order', { shared: true })
    await frozen.pause()
    const writer = readers.locks.acquire('order', { wait: '60s' })
    await until(async () => (await readers.holders()).length === 1, { what: 'the frozen one is over' })
    expect(here.held).toBe(true)
    await here.release()
    expect((await writer).held).toBe(true)
    await frozen.resume()
    expect(await state(frozen)).toMatchObject({ held: false, aborted: true })
    await (await writer).release()
  })
})

test(
  'a node that restarts empty in the middle costs no reader its lease, and lets no writer in',
  { timeout: 120_000 },
  async () => {
    await using readers = await startReaders('redlock')
    const workers = [await readers.reader('ioredis'), await readers.reader('node-redis')]
    await readers.nodes[2]!.kill()
    await readers.nodes[2]!.restart({ empty: true })
    expect(await readers.locks.tryAcquire('order')).toBe(null)
    for (const worker of workers) {
      worker.send({ id: 3, call: 'extend', resource: 'order' })
      expect(await worker.next(({ id }) => id === 3, { withinMs: 40_000 })).toMatchObject({ type: 'done' })
      worker.send({ id: 2, call: 'release', resource: 'order' })
      expect(await worker.next(({ id }) => id === 2, { withinMs: 40_000 })).toMatchObject({ ours: true })
    }
    await using writer = await readers.locks.acquire('order', { wait: '20s' })
    expect(writer.held).toBe(true)
  },
)
