import { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import type { Engine, InLine } from '../../src/engine.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'

const TTL_MS = 20_000
const OPTIONS = { requestTimeout: '1s', maxTtl: '20s' } as const

interface Reply {
  readonly type: string
  readonly [field: string]: unknown
}

/** Servers, locks of this process, and other processes that wait for what it holds. */
interface Line extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  readonly locks: Locks
  /** Another process asks for `order` and stands in line, behind those that do already. */
  waiter(wait?: string): Promise<Worker<Reply>>
  inLine(): Promise<readonly InLine[]>
}

async function startLine(name: 'redis' | 'redlock'): Promise<Line> {
  const { nodes, stop } = await startRedisNodes(name === 'redis' ? 1 : 3)
  const clients = nodes.map(({ port }) => new Redis({ host: '127.0.0.1', port }).on('error', () => undefined))
  const engine: Engine = name === 'redis' ? redis(clients[0]) : redlock(clients, OPTIONS)
  const locks = createLocks(engine, { ttl: TTL_MS })
  const workers: Worker<Reply>[] = []
  const inLine = async (): Promise<readonly InLine[]> => {
    for await (const { line = [] } of engine.inspect('order')) return line
    return []
  }
  return {
    nodes,
    locks,
    inLine,
    async waiter(wait = '60s') {
      const ports = nodes.map(({ port }) => port)
      const env = {
        RINGFENCE_PORT: String(ports[0]),
        RINGFENCE_PORTS: ports.join(','),
        RINGFENCE_REDLOCK_OPTIONS: JSON.stringify(OPTIONS),
      }
      const args = [name, String(TTL_MS)]
      const worker = startWorker<Reply>(new URL('./workers/puppet.mjs', import.meta.url), { args, env })
      workers.push(worker)
      await worker.next(({ type }) => type === 'ready', { withinMs: 40_000, what: 'sign of life' })
      const before = (await inLine()).length
      worker.send({ id: 1, call: 'acquire', resource: 'order', wait })
      await until(async () => (await inLine()).length > before, { what: 'the process stands in line' })
      return worker
    },
    async [Symbol.asyncDispose]() {
      for (const worker of workers) await worker[Symbol.asyncDispose]()
      await locks.close()
      for (const client of clients) client.disconnect()
      await stop()
    },
  }
}

function granted(worker: Worker<Reply>): Promise<Reply> {
  return worker.next(({ id }) => id === 1, { withinMs: 40_000, what: 'grant' })
}

async function release(worker: Worker<Reply>): Promise<void> {
  worker.send({ id: 2, call: 'release', resource: 'order' })
  expect(await worker.next(({ id }) => id === 2, { withinMs: 40_000 })).toMatchObject({ ours: true })
}

describe.each(['redis', 'redlock'] as const)('processes in line on %s', (name) => {
  test('are served in the order in which they came', { timeout: 120_000 }, async () => {
    await using line = await startLine(name)
    const lease = await line.locks.acquire('order', { wait: '10s' })
    const workers = [await line.waiter(), await line.waiter(), await line.waiter(), await line.waiter()]
    const since = (await line.inLine()).map((one) => one.since!)
    expect(since).toEqual(since.toSorted((a, b) => a - b))
    await lease.release()
    let token = lease.token
    for (const worker of workers) {
      const grant = await granted(worker)
      expect(grant).toMatchObject({ type: 'done', granted: true })
      expect(BigInt(String(grant['token']))).toBeGreaterThan(token)
      token = BigInt(String(grant['token']))
      await release(worker)
    }
  })

  test('are served although the first of them was killed', { timeout: 120_000 }, async () => {
    await using line = await startLine(name)
    const lease = await line.locks.acquire('order', { wait: '10s' })
    const [first, second] = [await line.waiter(), await line.waiter()]
    await first.kill()
    await lease.release()
    expect(await granted(second)).toMatchObject({ type: 'done', granted: true })
    await release(second)
  })

  test(
    'are served although the first of them is frozen, and that one after it has come back',
    { timeout: 120_000 },
    async () => {
      await using line = await startLine(name)
      const lease = await line.locks.acquire('order', { wait: '10s' })
      const [first, second] = [await line.waiter(), await line.waiter()]
      await first.pause()
      await lease.release()
      expect(await granted(second)).toMatchObject({ type: 'done', granted: true })
      await first.resume()
      await release(second)
      expect(await granted(first)).toMatchObject({ type: 'done', granted: true })
      await release(first)
    },
  )

  test('leave nothing when they give up', { timeout: 120_000 }, async () => {
    await using line = await startLine(name)
    const lease = await line.locks.acquire('order', { wait: '10s' })
    const worker = await line.waiter('3s')
    expect(await granted(worker)).toMatchObject({ type: 'failed', code: 'WAIT_TIMEOUT' })
    // The caller has its answer before the place is given up.
    for (const node of line.nodes) {
      const keys = async (): Promise<string[]> =>
        (await node.cli('KEYS', 'ringfence:line:*')).split('\n').filter(Boolean)
      await until(async () => (await keys()).length === 0, { withinMs: 500, what: 'nobody is in line' })
    }
    await lease.release()
    for (const node of line.nodes) expect(await node.cli('EXISTS', 'order')).toBe('0')
  })
})

test('a node that restarts empty in the middle costs nobody its place', { timeout: 120_000 }, async () => {
  await using line = await startLine('redlock')
  const lease = await line.locks.acquire('order', { wait: '10s' })
  const workers = [await line.waiter(), await line.waiter()]
  await line.nodes[2]!.kill()
  await line.nodes[2]!.restart({ empty: true })
  await lease.release()
  for (const worker of workers) {
    expect(await granted(worker)).toMatchObject({ type: 'done', granted: true })
    await release(worker)
  }
})
