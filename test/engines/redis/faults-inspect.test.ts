import { expect, test } from 'vitest'
import { dashboard } from '../../../src/dashboard/index.ts'
import type { History } from '../../../src/dashboard/protocol.ts'
import type { LeaseInfo } from '../../../src/engine.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { ManualClock } from '../../../harness/manual-clock.ts'
import { until } from '../../../harness/until.ts'
import { ask, Viewer } from '../../dashboard/viewer.ts'
import { restartEmpty, startQuorum } from './faults-quorum.ts'

const faults = [
  { fault: 'stopped', strike: (node: RedisServer) => node.freeze(), heal: (node: RedisServer) => node.thaw() },
  { fault: 'killed', strike: (node: RedisServer) => node.kill(), heal: (node: RedisServer) => node.restart() },
]

test.concurrent.each(faults)(
  'with a majority of nodes $fault nobody can tell what is held',
  async ({ strike, heal }) => {
    await using quorum = await startQuorum({ durable: true })
    const locks = quorum.locks({ ttl: '60s' })
    const lease = await locks.acquire('held')
    await locks.acquire('other')
    for (const majority of [quorum.nodes.slice(0, 3), quorum.nodes.slice(2)]) {
      await Promise.all(majority.map(strike))
      const all = collect(locks.inspect())
      await expect(all).rejects.toMatchObject({ code: 'QUORUM', transient: true, quorum: 3, size: 5 })
      await expect(collect(locks.inspect('held'))).rejects.toMatchObject({ code: 'QUORUM', resources: ['held'] })
      await expect(all).rejects.toThrow(/^no quorum: 3 of 5 nodes needed \(127/)
      await Promise.all(majority.map(heal))
      await until(async () => (await collect(locks.inspect()).catch(() => [])).length === 2, {
        what: 'both leases again',
      })
    }
    expect(lease.held).toBe(true)
  },
)

test.concurrent('silent nodes cost the time of one request, and closing afterwards none', async () => {
  await using quorum = await startQuorum()
  await quorum.locks().acquire('held')
  const clock = new ManualClock()
  const locks = quorum.locks({}, { requestTimeout: undefined, clock })
  expect(await collect(locks.inspect())).toMatchObject([{ resource: 'held' }])
  const majority = quorum.nodes.slice(0, 3)
  await Promise.all(majority.map((node) => node.freeze()))
  const looks = [undefined, 'held'].map((name) =>
    expect(collect(locks.inspect(name))).rejects.toThrow(/no answer within 1000 ms/),
  )
  await clock.advance(1000)
  await Promise.all(looks)
  // It waits for what may change something, and nothing of that is under way.
  await locks.close()
  await Promise.all(majority.map((node) => node.thaw()))
})

test.concurrent.each(faults)(
  'with a minority of nodes $fault everything that is held is shown',
  async ({ strike, heal }) => {
    await using quorum = await startQuorum()
    const locks = quorum.locks({ ttl: '60s' })
    const names = Array.from({ length: 20 }, (_, index) => `lease ${index}`)
    const leases = await Promise.all(names.map((name) => locks.acquire(name)))
    const bare = leases[7]!
    // Held by a bare majority, of which one node is about to be away.
    for (const node of quorum.nodes.slice(3)) await node.cli('DEL', names[7]!)
    const minority = quorum.nodes.slice(1, 3)
    await Promise.all(minority.map(strike))
    const shown = await collect(locks.inspect())
    expect(shown.map(({ resource }) => resource).sort()).toEqual([...names].sort())
    const { owner, token } = bare
    expect(shown.find(({ resource }) => resource === names[7])).toMatchObject({ owner, token })
    expect(await collect(locks.inspect(names[7]))).toMatchObject([{ owner, token }])
    await Promise.all(minority.map(heal))
  },
)

test.concurrent('the dashboard keeps what it knew, says what is wrong, and makes up no history', async () => {
  await using quorum = await startQuorum({ durable: true })
  const locks = quorum.locks({ ttl: '60s' })
  const watching = quorum.locks()
  const names = ['order:1', 'order:2']
  const leases = await Promise.all(names.map((name) => locks.acquire(name)))
  await using page = dashboard(watching, { auth: () => 'read', every: 100 })
  await using viewer = await Viewer.open(page)
  for (const name of names) await viewer.sees(name)
  const majority = quorum.nodes.slice(0, 3)
  await Promise.all(majority.map((node) => node.freeze()))
  const { message } = await until(() => viewer.last('trouble'), { what: 'trouble', withinMs: 20_000 })
  expect(message).toContain('no quorum: 3 of 5 nodes needed')
  await using late = await Viewer.open(page)
  for (const name of names) await late.sees(name)
  await Promise.all(majority.map((node) => node.thaw()))
  await until(() => viewer.last('trouble')?.message === null, { what: 'no more trouble', withinMs: 20_000 })
  for (const [index, name] of names.entries()) {
    expect(viewer.rows.get(name)).toMatchObject({ token: String(leases[index]!.token) })
    const { entries } = (await (await ask(page, `/history?resource=${name}`)).json()) as History
    expect(entries.map(({ type }) => type)).toEqual(['seen'])
  }
})

test.concurrent('nodes that sit out do not make a lease look free', async () => {
  await using quorum = await startQuorum()
  const locks = quorum.locks({ ttl: '60s' })
  const lease = await locks.acquire('held')
  await using page = dashboard(quorum.locks(), { auth: () => 'read', every: 100 })
  await using viewer = await Viewer.open(page)
  await viewer.sees('held')
  const { owner, token } = lease
  for (const node of quorum.nodes.slice(0, 2)) await restartEmpty(node)
  const fresh = quorum.locks()
  expect(await collect(fresh.inspect('held'))).toMatchObject([{ owner, token }])
  // Two of those that vote still hold it, and the two that sit out may have.
  await quorum.nodes[2]!.cli('DEL', 'held')
  expect(await collect(fresh.inspect())).toMatchObject([{ owner, token }])
  await restartEmpty(quorum.nodes[2]!)
  const before = await stamps(quorum.nodes)
  const why = /^no quorum for 'held': 3 of 5 nodes needed \(127.*: sits out for 61 s from the next attempt on/
  for (const looking of [fresh.inspect('held'), fresh.inspect(), quorum.locks().inspect()]) {
    await expect(collect(looking)).rejects.toMatchObject({ code: 'QUORUM', transient: true })
  }
  await expect(collect(quorum.locks().inspect('held'))).rejects.toThrow(why)
  expect(await stamps(quorum.nodes)).toEqual(before)
  await until(() => viewer.last('trouble')?.message?.includes('sits out') === true, { what: 'trouble' })
  expect(viewer.rows.get('held')).toMatchObject({ token: String(token) })
  const { entries } = (await (await ask(page, '/history?resource=held')).json()) as History
  expect(entries.map(({ type }) => type)).toEqual(['seen'])
  // Those who have seen the quorum in use know better than nodes that have all forgotten it.
  for (const node of quorum.nodes.slice(3)) await restartEmpty(node)
  await until(async () => (await fresh.engine.probe!()).every(({ error }) => error === undefined), { what: 'answers' })
  await expect(collect(fresh.inspect('held'))).rejects.toMatchObject({ code: 'QUORUM' })
  expect(lease.held).toBe(true)
})

test.concurrent('a new deployment holds nothing, and looking at it leaves no trace', async () => {
  await using quorum = await startQuorum({}, 3)
  expect(await collect(quorum.locks().inspect())).toEqual([])
  expect(await collect(quorum.locks().inspect('order'))).toEqual([])
  expect(await stamps(quorum.nodes)).toEqual(['', '', ''])
})

test.concurrent.each(['3s', '10m'] as const)(
  'who only looks need not know the maxTtl of the holders, here %s',
  async (maxTtl) => {
    await using quorum = await startQuorum({}, 3)
    const holder = quorum.locks({ ttl: '3s' }, { maxTtl })
    const { owner, token } = await holder.acquire('held')
    const watching = quorum.locks()
    expect(await collect(watching.inspect('held'))).toMatchObject([{ owner, token }])
    expect(await collect(watching.inspect())).toMatchObject([{ owner, token }])
    for (const node of quorum.nodes.slice(1)) await restartEmpty(node)
    await expect(collect(quorum.locks().inspect('held'))).rejects.toMatchObject({ code: 'QUORUM' })
  },
)

function stamps(nodes: readonly RedisServer[]): Promise<string[]> {
  return Promise.all(nodes.map((node) => node.cli('HGETALL', 'ringfence:stamp')))
}

async function collect(infos: AsyncIterable<LeaseInfo>): Promise<LeaseInfo[]> {
  const all: LeaseInfo[] = []
  for await (const info of infos) all.push(info)
  return all
}
