import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard, type Dashboard } from '../../src/dashboard/index.ts'
import { file } from '../../src/engines/file/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Engine } from '../../src/index.ts'
import { program } from '../../harness/binaries.ts'
import { runTool } from '../../harness/process.ts'
import { startPrometheus, type PrometheusServer } from '../../harness/servers/prometheus.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { ask, post, Viewer } from './viewer.ts'

const READ = 'reader-0123456789abcdef'
const bearer = { authorization: `Bearer ${READ}` }

/** An engine that fails when the test says so. */
function frail(): { engine: Engine; fails: boolean } {
  const engine = memory()
  const inspect = engine.inspect.bind(engine)
  const state = { engine, fails: false }
  engine.inspect = async function* (resource?: string) {
    if (state.fails) throw new Error('it is away')
    yield* inspect(resource)
  }
  return state
}

describe('/healthz', () => {
  test('says that the process answers, to everybody and whatever the engine does; /healthz/engines says that to readers', async () => {
    const state = frail()
    const page = dashboard({ one: memory(), two: state.engine }, { readToken: READ, every: 100, whenIdle: 1000 })
    const health = async (): Promise<unknown> => {
      const response = await ask(page, '/healthz/engines', { headers: bearer })
      return [response.status, await response.json()]
    }
    const alive = async (): Promise<unknown> => {
      const response = await ask(page, '/healthz', { remoteAddress: '192.0.2.1', headers: { host: '10.0.0.7:7464' } })
      return [response.status, await response.json()]
    }
    expect(await alive()).toEqual([200, { status: 'ok' }])
    expect((await ask(page, '/healthz/engines')).status).toBe(401)
    await until(() => page.counts.looks >= 2, { what: 'both were looked through' })
    expect(await health()).toEqual([200, { status: 'ok', engines: { one: 'reachable', two: 'reachable' } }])
    state.fails = true
    const failing = { status: 'failing', engines: { one: 'reachable', two: 'unreachable' } }
    await until(async () => JSON.stringify(await health()) === JSON.stringify([503, failing]), {
      what: 'it is noticed',
    })
    expect(await alive()).toEqual([200, { status: 'ok' }])
    await page.close()
    expect((await ask(page, '/healthz')).status).toBe(503)
  })

  test('does not ask the hook who asks, and is on this machine for every name', async () => {
    await using hooked = dashboard(memory(), {
      auth: () => {
        throw new Error('nobody should be asked')
      },
    })
    expect((await ask(hooked, '/healthz')).status).toBe(200)
    await expect(ask(hooked, '/metrics')).rejects.toThrow('nobody should be asked')
    await using local = dashboard(memory())
    expect((await ask(local, '/healthz', { remoteAddress: '192.0.2.1' })).status).toBe(200)
    expect((await ask(local, '/metrics', { remoteAddress: '192.0.2.1' })).status).toBe(403)
    expect((await ask(local, '/metrics', { headers: { host: 'evil.example' } })).status).toBe(421)
    expect((await ask(local, '/healthz', { method: 'POST' })).status).toBe(405)
  })
})

describe('/metrics', () => {
  const folder = createFolder('metrics')
  let group: Awaited<ReturnType<typeof startRedisNodes>>
  let clients: Redis[]
  let page: Dashboard
  let server: Server
  let prometheus: PrometheusServer
  const engines: Engine[] = []
  beforeAll(async () => {
    group = await startRedisNodes(3)
    clients = group.urls.map((url) => new Redis(url, { retryStrategy: () => 100 }).on('error', () => undefined))
    engines.push(redlock(clients), file(`${folder}/locks.db`))
    const [orders, local] = engines as [Engine, Engine]
    page = dashboard({ orders, local }, { readToken: READ, path: '/locks', whenIdle: '1s' })
    server = createServer(page.listener)
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    prometheus = await startPrometheus(`127.0.0.1:${port}`, [], { path: '/locks/metrics', token: READ })
  })
  afterAll(async () => {
    await prometheus?.stop()
    await page.close()
    server.closeAllConnections()
    server.close()
    await Promise.all(engines.map((engine) => engine.close()))
    for (const client of clients) client.disconnect()
    await group.stop()
    removeFolder(folder)
  })

  /** By labels, without those of Prometheus. */
  const values = async (query: string): Promise<Record<string, number>> => {
    const samples = await prometheus.query(query)
    return Object.fromEntries(
      samples.map(({ metric, value }) => {
        const labels = Object.entries(metric).filter(([name]) => !['__name__', 'job', 'instance'].includes(name))
        return [
          labels
            .map(([, label]) => label)
            .sort()
            .join(),
          Number(value[1]),
        ]
      }),
    )
  }
  const becomes = (query: string, wanted: Record<string, number>): Promise<unknown> =>
    until(async () => JSON.stringify(sorted(await values(query))) === JSON.stringify(sorted(wanted)), {
      what: `${query} is ${JSON.stringify(wanted)}`,
      withinMs: 45_000,
      everyMs: 200,
    })

  test('a real Prometheus logs in, and reads leases, waiters, nodes and what the doctor says', async () => {
    const locks = createLocks(redlock(clients), { ttl: '10s' })
    const others = createLocks(redlock(clients), { wait: '60s' })
    const lease = await locks.acquire('order:1')
    await locks.acquire('order:2')
    const next = others.acquire('order:1')
    await becomes('ringfence_engine_leases', { orders: 2, local: 0 })
    await becomes('ringfence_engine_waiters', { orders: 1 })
    await becomes('ringfence_engine_reachable', { orders: 1, local: 1 })
    await becomes('ringfence_engine_nodes{engine="orders"}', {
      'answering,orders': 3,
      'orders,silent': 0,
      'orders,sitting_out': 0,
    })
    await becomes('count(ringfence_engine_node_clock_offset_seconds{engine="orders"})', { '': 3 })
    await until(async () => (await values('ringfence_engine_score'))['orders']! > 0, { what: 'a score' })
    const findings = await values('ringfence_engine_findings')
    expect(Object.keys(findings).filter((labels) => labels.includes('orders'))).toHaveLength(4)
    expect(findings['critical,orders']).toBe(0)
    expect((await values('ringfence_engine_oldest_lease_seconds'))['orders']).toBeGreaterThan(0)
    expect((await values('ringfence_engine_longest_wait_seconds'))['orders']).toBeGreaterThan(0)

    await group.nodes[2]!.kill()
    await becomes('ringfence_engine_nodes{engine="orders",state="silent"}', { 'orders,silent': 1 })
    await lease.release()
    await (await next).release()
    await becomes('ringfence_engine_waiters', { orders: 0 })
    await locks.close()
    await others.close()
  })

  test('what it reads is in order, as promtool sees it', async () => {
    const response = await ask(page, '/locks/metrics', { headers: bearer })
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    const { path, env } = program('promtool')
    expect(await runTool({ path, args: ['check', 'metrics'], env }, await response.text())).toBe('')
  })
})

describe('several engines', () => {
  test('have a board, a stream and a history each, and are told to all pages', async () => {
    const state = frail()
    const two = state.engine
    const one = memory()
    await using page = dashboard({ one, two }, { auth: () => 'write', every: 100, whenIdle: 1000, streams: 2 })
    await createLocks(one).acquire('a')
    const locks = createLocks(two, { observe: page.observerOf('two') })
    const lease = await locks.acquire('b')
    await using first = new Viewer(await ask(page, '/events'))
    await using second = new Viewer(await ask(page, '/events?engine=two'))
    await first.sees('a')
    await second.sees('b')
    expect([first.rows.has('b'), second.rows.has('a')]).toEqual([false, false])
    expect((await first.has('hello')).engine).toMatchObject({ key: 'one', name: 'memory' })
    expect((await ask(page, '/events')).status).toBe(503)
    expect((await ask(page, '/events?engine=three')).status).toBe(404)
    const { status, headers } = await ask(page, '/?engine=three')
    expect([status, headers.get('location')]).toEqual([303, './'])
    const body = { resource: 'b', token: String(lease.token) }
    expect(await (await post(page, '/release', body)).json()).toEqual({ ours: false })
    expect(await (await post(page, '/release?engine=two', body)).json()).toEqual({ ours: true })
    const past = await (await ask(page, '/history?engine=two&resource=b')).json()
    expect(past).toMatchObject({ entries: [{ type: 'forced' }, { type: 'granted' }] })
    expect(await (await ask(page, '/history?resource=b')).json()).toMatchObject({ entries: [] })
    state.fails = true
    const isTold = (): boolean =>
      first.last('engines')?.engines.some(({ key, severity }) => key === 'two' && severity === 'critical') === true
    await until(isTold, { what: 'a page of the first one hears that the second one is away' })
  })

  test.each([
    [undefined, /^engine: expected an engine, locks, or several of them by name, got undefined$/],
    [[memory()], /^engine: expected an engine, locks, or several/],
    [{}, /^engine: expected at least one engine, got none$/],
    [{ 'a b': memory() }, /^engine: expected a name of 1 to 40 letters, digits, '_', '\.' or '-', got 'a b'$/],
    [{ orders: 'redis' }, /^engine orders: expected an engine or locks, got 'redis'$/],
    [{ engine: {} }, /^engine engine: expected an engine or locks/],
  ])('%j is refused', (source, message) => {
    expect(() => dashboard(source as never)).toThrow(message)
  })

  test('a name that is none has no observer', async () => {
    await using page = dashboard({ one: memory() })
    expect(() => page.observerOf('two')).toThrow("name: expected one of one, got 'two'")
  })
})

function sorted(record: Record<string, number>): [string, number][] {
  return Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1))
}
