import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { etcd } from '../../../src/engines/etcd/index.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startEtcdCluster, type EtcdCluster, type EtcdServer } from '../../../harness/servers/etcd.ts'
import { until } from '../../../harness/until.ts'
import { queueLength } from '../readers-and-writers.ts'

let cluster: EtcdCluster

beforeAll(async () => {
  cluster = await startEtcdCluster()
})

afterAll(() => cluster.stop())

interface Client {
  readonly locks: Locks
  readonly events: LockEvent[]
}

/** The endpoints in an order of its own, so that every member is somebody's first. */
function client(urls: readonly string[], turn: number, ttlMs = 10_000): Client {
  const events: LockEvent[] = []
  const rotated = [...urls.slice(turn % urls.length), ...urls.slice(0, turn % urls.length)]
  const locks = createLocks(etcd(rotated), { ttl: ttlMs, wait: '50s', observe: (event) => events.push(event) })
  onTestFinished(() => locks.close())
  return { locks, events }
}

/** A holder and three waiters in a known order. */
async function queueUp(resource: string) {
  const holder = client(cluster.urls, 0)
  const lease = await holder.locks.acquire(resource)
  const order: number[] = []
  const tokens = [lease.token]
  const waiters: Promise<void>[] = []
  for (let index = 0; index < 3; index++) {
    const { locks } = client(cluster.urls, index)
    waiters.push(
      locks.using(resource, ({ token }) => {
        order.push(index)
        tokens.push(token)
      }),
    )
    const places = async (): Promise<boolean> => (await queueLength(holder.locks.engine, resource)) === index + 2
    await until(places, { what: `waiter ${index} in the queue` })
  }
  return { holder, lease, order, tokens, waiters }
}

async function anotherLeader(old: EtcdServer): Promise<void> {
  await until(async () => (await cluster.leader()) !== old, { what: 'another leader', withinMs: 30_000 })
}

test.each(['killed', 'frozen'] as const)(
  'the leader is %s while waiters queue: the holder keeps its lease, and all are served in their order',
  async (how) => {
    const { holder, lease, order, tokens, waiters } = await queueUp(how)
    const old = await cluster.leader()
    await (how === 'killed' ? old.kill() : old.freeze())
    const brokenMs = performance.now()
    await anotherLeader(old)
    const renewals = (): number => holder.events.filter(({ type }) => type === 'renewed').length
    const before = renewals()
    await until(() => renewals() > before, { what: 'a renewal', withinMs: 20_000 })
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    await Promise.all(waiters)
    console.log(`etcd, leader ${how}: all served ${Math.round(performance.now() - brokenMs)} ms later`)
    expect(order).toEqual([0, 1, 2])
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
    await (how === 'killed' ? old.restart() : old.thaw())
  },
)

test('a waiter whose member freezes is woken nevertheless', async () => {
  const leader = await cluster.leader()
  const [listened, other] = cluster.nodes.filter((node) => node !== leader)
  const holder = client([other!.url], 0)
  const lease = await holder.locks.acquire('deaf')
  // The follower first, then the leader.
  const waiter = client([listened!.url, leader.url], 0)
  const waiting = waiter.locks.acquire('deaf')
  await until(async () => (await queueLength(holder.locks.engine, 'deaf')) === 2, { what: 'a place in the queue' })
  await listened!.freeze()
  const frozenMs = performance.now()
  await lease.release()
  await using next = await waiting
  console.log(
    `etcd: a waiter on a frozen member got in ${Math.round(performance.now() - frozenMs)} ms after the release`,
  )
  expect(next.token).toBeGreaterThan(lease.token)
  await listened!.thaw()
})

test('without a majority nothing is granted, and the error says that there is no leader', async () => {
  const [one, two, three] = cluster.nodes
  const { locks } = client([three!.url], 0)
  await Promise.all([one!.kill(), two!.kill()])
  const noLeader = async (): Promise<boolean> => {
    const error = await locks.tryAcquire('a').catch((reason: unknown) => reason as Error)
    return error instanceof Error && error.message.includes('no leader')
  }
  await until(noLeader, { what: 'the error', withinMs: 20_000 })
  await Promise.all([one!.restart(), two!.restart()])
  const granted = async (): Promise<boolean> => (await locks.tryAcquire('a')) !== null
  await until(granted, { what: 'a lease', withinMs: 20_000 })
})
