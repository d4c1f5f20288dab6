import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { consul } from '../../../src/engines/consul/index.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startConsulCluster, type ConsulCluster, type ConsulServer } from '../../../harness/servers/consul.ts'
import { until } from '../../../harness/until.ts'

let cluster: ConsulCluster

beforeAll(async () => {
  cluster = await startConsulCluster()
})

afterAll(() => cluster.stop())

interface Client {
  readonly locks: Locks
  readonly events: LockEvent[]
}

function client(urls: readonly string[]): Client {
  const events: LockEvent[] = []
  const engine = consul(urls, { sessionTtlMin: '1s' })
  const locks = createLocks(engine, { ttl: '10s', wait: '50s', observe: (event) => events.push(event) })
  onTestFinished(() => locks.close())
  return { locks, events }
}

async function anotherLeader(old: ConsulServer): Promise<void> {
  await until(async () => (await cluster.leader()) !== old, { what: 'another leader', withinMs: 40_000 })
}

test.each(['killed', 'frozen'] as const)(
  'the leader is %s while waiters wait: the holder keeps its lease, and all are served',
  async (how) => {
    const old = await cluster.leader()
    // Sessions belong to the agent that made them, so that of the holder is made by one that stays; waiters ask the
    // leader first.
    const others = cluster.nodes.filter((node) => node !== old).map(({ url }) => url)
    const holder = client(others)
    const lease = await holder.locks.acquire(how)
    const tokens = [lease.token]
    const clients = [client([old.url, ...others]), client(others), client(others.toReversed())]
    const waiters = clients.map(({ locks }) => locks.using(how, ({ token }) => void tokens.push(token)))
    const waiting = (): boolean => clients.every(({ events }) => events.some(({ type }) => type === 'waiting'))
    await until(waiting, { what: 'three waiters' })
    await (how === 'killed' ? old.kill() : old.freeze())
    const brokenMs = performance.now()
    await anotherLeader(old)
    const renewals = (): number => holder.events.filter(({ type }) => type === 'renewed').length
    const before = renewals()
    await until(() => renewals() > before, { what: 'a renewal', withinMs: 20_000 })
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    await Promise.all(waiters)
    console.log(`consul, leader ${how}: all served ${Math.round(performance.now() - brokenMs)} ms later`)
    expect(tokens).toHaveLength(4)
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)))
    await (how === 'killed' ? old.restart() : old.thaw())
  },
)

test('without a majority nothing is granted, and the doctor says why', async () => {
  const [one, two, three] = cluster.nodes
  const { locks } = client([three!.url])
  await Promise.all([one!.kill(), two!.kill()])
  // A server waits for a leader for longer than we wait for its answer.
  await expect(locks.tryAcquire('a')).rejects.toMatchObject({ code: 'ENGINE', transient: true })
  const leaderless = async () => (await locks.check()).find(({ id }) => id === 'consul/leader')
  const finding = await until(leaderless, { what: 'the finding', withinMs: 30_000 })
  expect(finding).toMatchObject({ severity: 'critical', node: three!.url, found: 'The agent knows no leader.' })
})
