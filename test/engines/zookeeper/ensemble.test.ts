import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import { createLocks, type LockEvent, type Locks } from '../../../src/index.ts'
import {
  startZookeeperEnsemble,
  type ZookeeperEnsemble,
  type ZookeeperServer,
} from '../../../harness/servers/zookeeper.ts'
import { until } from '../../../harness/until.ts'
import { groupsOf, lineUp } from '../readers-and-writers.ts'
import { rawClient, spyingDriver } from './raw-client.ts'

let ensemble: ZookeeperEnsemble

beforeAll(async () => {
  ensemble = await startZookeeperEnsemble(3, { properties: { 'readonlymode.enabled': 'true' } })
})

afterAll(() => ensemble.stop())

const ttl = 6000

function newLocks(path: string, events: LockEvent[] = [], clients: driver.Client[] = []): Locks {
  const engine = zookeeper(spyingDriver(clients), ensemble.connectString, { path, maxTtl: ttl })
  const locks = createLocks(engine, { ttl, wait: '40s', observe: (event) => events.push(event) })
  onTestFinished(() => locks.close())
  return locks
}

/** The server that a client is connected to. */
function serverOf(client: driver.Client): ZookeeperServer | undefined {
  const { connectionManager } = client as unknown as { connectionManager: { socket: { remotePort: number } } }
  return ensemble.nodes.find(({ port }) => port === connectionManager.socket.remotePort)
}

function count(events: readonly LockEvent[], type: LockEvent['type']): number {
  return events.filter((event) => event.type === type).length
}

test('the leader is killed while waiters queue: nobody loses a place, nobody overlaps, tokens grow', async () => {
  const raw = await rawClient(ensemble.connectString)
  const events: LockEvent[] = []
  const holder = await newLocks('/leader', events).acquire('x')
  const order: number[] = []
  const tokens = [holder.token]
  let inside = 0
  let most = 0
  const sections: Promise<unknown>[] = []
  for (let i = 0; i < 4; i++) {
    const section = newLocks('/leader').using('x', async ({ token }) => {
      most = Math.max(most, ++inside)
      order.push(i)
      tokens.push(token)
      await raw.stat('/')
      inside--
    })
    sections.push(section)
    await until(async () => (await raw.children('/leader/x')).length === i + 2, { what: `waiter ${i} in line` })
  }
  const leader = await ensemble.leader()
  await leader.kill()
  const before = count(events, 'renewed')
  await until(() => count(events, 'renewed') > before, { what: 'a renewal by the new leader', withinMs: 20_000 })
  expect(holder.held).toBe(true)
  expect(await holder.release()).toBe(true)
  await Promise.all(sections)
  expect(order).toEqual([0, 1, 2, 3])
  expect(most).toBe(1)
  expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
  expect(await raw.children('/leader')).toEqual([])
  await leader.restart()
})

test('the leader is killed in the middle of a mixed queue: readers keep their leases, all are served in their order', async () => {
  const holders = [newLocks('/mixed'), newLocks('/mixed')]
  const leases = await Promise.all(holders.map((locks) => locks.acquire('x', { shared: true })))
  const engines = [0, 1].map(() => zookeeper(driver, ensemble.connectString, { path: '/mixed' }))
  onTestFinished(() => Promise.all(engines.map((engine) => engine.close())).then(() => undefined))
  const queue = await lineUp(engines, 'x', 'wrrwr')
  const leader = await ensemble.leader()
  await leader.kill()
  for (const lease of leases) {
    await until(() => lease.extend().then(() => true), { what: 'a renewal by the new leader', withinMs: 20_000 })
    expect(await lease.release()).toBe(true)
  }
  await queue.over
  expect(groupsOf(queue.events)).toEqual(['w0', 'r1 r2', 'w3', 'r4'])
  expect(queue.tokens).toEqual([...queue.tokens].sort((a, b) => (a < b ? -1 : 1)))
  await leader.restart()
})

test('the server of a holder is frozen: the holder goes to another one and keeps its lease', async () => {
  const leader = await ensemble.leader()
  const clients: driver.Client[] = []
  const events: LockEvent[] = []
  // The driver connects to whichever it likes.
  let locks: Locks
  do {
    locks = newLocks('/frozen', events, clients)
    await locks.check()
  } while (serverOf(clients.at(-1)!) === leader)
  const lease = await locks.acquire('x')
  const follower = serverOf(clients.at(-1)!)!
  await follower.freeze()
  onTestFinished(() => follower.thaw())
  await until(() => serverOf(clients.at(-1)!) !== follower, { what: 'another server', withinMs: 10_000 })
  const before = count(events, 'renewed')
  await until(() => count(events, 'renewed') > before, { what: 'a renewal there', withinMs: 10_000 })
  expect(lease.held).toBe(true)
  expect(await newLocks('/frozen').tryAcquire('x')).toBeNull()
  expect(await lease.release()).toBe(true)
})

test('the doctor is content with an ensemble, and tells of servers that are down, cut off or read-only', async () => {
  const engine = zookeeper(driver, ensemble.connectString, { path: '/doctor', maxTtl: ttl })
  onTestFinished(() => engine.close())
  const find = async (id: string): Promise<readonly Finding[]> =>
    (await engine.check(ttl)).filter((finding) => finding.id === id)
  await until(async () => (await find('zookeeper/server')).every(({ severity }) => severity === 'ok'), {
    what: 'three servers that serve',
  })
  expect(await find('zookeeper/quorum')).toMatchObject([{ severity: 'ok' }])
  expect(await find('zookeeper/session')).toMatchObject([{ severity: 'ok' }])

  const one = zookeeper(driver, `127.0.0.1:${ensemble.nodes[0]!.port}`, { path: '/doctor', maxTtl: ttl })
  onTestFinished(() => one.close())
  expect(await one.check(ttl)).toContainEqual(
    expect.objectContaining({ id: 'zookeeper/quorum', severity: 'warning', found: expect.stringContaining('only') }),
  )

  const [first, second, third] = ensemble.nodes
  await first!.kill()
  expect(await find('zookeeper/server')).toContainEqual(
    expect.objectContaining({ node: `127.0.0.1:${first!.port}`, severity: 'warning' }),
  )
  await second!.kill()
  await until(async () => (await third!.command('srvr')).includes('read-only'), { what: 'read-only mode' })
  expect(await find('zookeeper/read-only')).toMatchObject([{ severity: 'critical', node: `127.0.0.1:${third!.port}` }])
  expect(await find('zookeeper/session')).toMatchObject([{ severity: 'critical' }])
})
