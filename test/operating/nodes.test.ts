import { cpSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { Home } from '../../harness/command.ts'
import { startProxy } from '../../harness/faults/proxy.ts'
import { startRedis, startRedisOn, type RedisServer } from '../../harness/servers/redis.ts'
import { createFolder, giveToServer, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import type { LockEvent } from '../../src/events.ts'
import type { Locks } from '../../src/locks.ts'
import { allAnswer, copyOf, heldOnTwo, refused } from '../engines/redis/admission-quorum.ts'
import { restartEmpty, startQuorum } from '../engines/redis/faults-quorum.ts'
import { Traffic } from './traffic.ts'

/** With it the time of sitting out is the shortest, 6 s. */
const maxTtl = '5s'

/** What `ringfence doctor` says about the nodes. */
async function voters(locks: Locks): Promise<string> {
  const findings = await locks.check()
  return findings.find(({ id }) => id === 'redis/voters')!.found
}

/** Step "until the doctor says that all may vote". */
async function allVote(locks: Locks): Promise<void> {
  await allAnswer(locks)
  const all = async (): Promise<boolean> => /^(\d) of \1 nodes may vote/.test(await voters(locks))
  await until(all, { what: 'all nodes may vote', withinMs: 40_000, everyMs: 200 })
}

// They wait for nodes that sit out, beside each other.
describe.concurrent('docs/operating/nodes.md', { timeout: 120_000 }, () => {
  test('replacing: another server behind the same address sits out, and the others go on', async () => {
    await using quorum = await startQuorum({}, 3)
    await using proxy = await startProxy(quorum.nodes[0]!.port)
    const ports = [proxy.port, ...quorum.nodes.slice(1).map(({ port }) => port)]
    const client = (): Locks => quorum.locks({}, { maxTtl }, ports)
    const [first, second, operator] = [client(), client(), client()]
    await operator.engine.init!()
    await using traffic = new Traffic()
    traffic.add(first)
    traffic.add(second)
    await traffic.goesOn()

    await quorum.nodes[0]!.kill()
    await traffic.goesOn()
    await using spare = await startRedis()
    proxy.aim(spare.port)
    await allAnswer(operator)
    expect((await operator.engine.init!())[0]).toMatch(/sits out for \d+ s more/)
    expect(await voters(operator)).toMatch(/^2 of 3 nodes may vote/)
    await traffic.goesOn()
    await allVote(operator)

    // Now it counts: another one may go.
    await quorum.nodes[1]!.kill()
    await traffic.goesOn()
    expect(traffic.broken).toEqual([])
  })

  test('rolling restart of nodes that forget: each sits out while the others go on, and a lease is held all the time', async () => {
    await using quorum = await startQuorum({}, 3)
    let renewals = 0
    const observe = ({ type }: LockEvent): void => void (type === 'renewed' && renewals++)
    const holder = quorum.locks({ observe }, { maxTtl })
    const [first, second, operator] = [1, 2, 3].map(() => quorum.locks({}, { maxTtl })) as [Locks, Locks, Locks]
    await operator.engine.init!()
    const kept = await holder.acquire('kept', { ttl: maxTtl })
    await using traffic = new Traffic()
    traffic.add(first)
    traffic.add(second)
    await traffic.goesOn()
    const [one, two, three] = quorum.nodes
    for (const node of [one!, two!, three!]) {
      expect(await voters(operator)).toMatch(/^3 of 3 nodes may vote/)
      await restartEmpty(node)
      await allAnswer(operator)
      await operator.engine.init!()
      expect(await voters(operator)).toMatch(/^2 of 3 nodes may vote/)
      await traffic.goesOn()
      if (node === three) break
      await allVote(operator)
      // Two thirds of the ttl, says the page: one renewal puts the lease on this node too, and the next one counts it there.
      await until(async () => (await node.cli('EXISTS', 'kept')) === '1', { what: 'the lease is on the node' })
      const from = renewals
      await until(() => renewals >= from + 2, { what: 'two more renewals' })
    }
    expect(kept.held).toBe(true)
    expect(await kept.release()).toBe(true)
    expect(traffic.broken).toEqual([])
  })

  test('adding and removing nodes, and another prefix: stop all clients, wait, init with the new list, start', async () => {
    await using quorum = await startQuorum({}, 5)
    const ports = quorum.nodes.map(({ port }) => port)
    await using traffic = new Traffic()
    const changes = [
      { list: ports.slice(0, 3) },
      { list: ports },
      { list: ports.slice(2) },
      { list: ports.slice(2), prefix: 'lock:' },
    ]
    let before: Locks[] = []
    for (const { list, prefix = '' } of changes) {
      const client = (): Locks => quorum.locks({}, { maxTtl, prefix }, list)
      for (const locks of before) await traffic.remove(locks)
      for (const locks of before) expect(await locks.status('order')).toBeNull()
      const operator = client()
      await operator.engine.init!()
      await allVote(operator)
      before = [client(), client()]
      for (const locks of before) traffic.add(locks)
      await traffic.goesOn()
    }
    expect(traffic.broken).toEqual([])
  })

  test('never the old list and the new one side by side, nor two prefixes: that is a second holder', async () => {
    await using quorum = await startQuorum({}, 5)
    const ports = quorum.nodes.map(({ port }) => port)
    const wide = quorum.locks({}, {}, ports)
    await wide.engine.init!()
    // It has the list of the first three, and reaches two of them.
    const { holder, proxy } = await heldOnTwo(quorum)
    await using _proxy = proxy
    const lease = await holder.acquire('order')
    const rival = await wide.acquire('order', { wait: '20s' })
    const other = await quorum.locks({}, { prefix: 'lock:' }, ports).acquire('order', { wait: '20s' })
    const all = [lease, rival, other]
    expect(all.map(({ held }) => held)).toEqual([true, true, true])
    for (const each of all) await each.release()

    // The clients that the other tests watch would see it.
    await using traffic = new Traffic()
    traffic.add(quorum.locks({}, {}, ports.slice(0, 3)))
    traffic.add(quorum.locks({}, { prefix: 'lock:' }, ports.slice(0, 3)))
    await until(() => traffic.broken.some((text) => text.startsWith('two holders')), { what: 'two holders are seen' })

    // A lease that rests on all nodes of the old list stops those of the new list as well, because they have too few others.
    const narrow = quorum.locks({}, {}, ports.slice(0, 3))
    const parked = await narrow.acquire('parked')
    const places = quorum.nodes.slice(0, 3)
    const there = async (): Promise<boolean> =>
      (await Promise.all(places.map((node) => node.cli('EXISTS', 'parked')))).every((answer) => answer === '1')
    await until(there, { what: 'the lease is on all three' })
    expect(await wide.tryAcquire('parked')).toBeNull()
    expect(await parked.release()).toBe(true)
  })

  test('a longer maxTtl: init and wait with the new value, then one client after the other; a shorter one: at once', async () => {
    await using home = new Home()
    await using quorum = await startQuorum({}, 3)
    const short = (): Locks => quorum.locks({}, { maxTtl })
    const long = (): Locks => quorum.locks({}, { maxTtl: '8s' })
    const [first, second] = [short(), short()]
    await using traffic = new Traffic()
    traffic.add(first)
    traffic.add(second)
    await traffic.goesOn()

    const url = `redis://${quorum.nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}?maxTtl=8s`
    const init = await home.run(['init', '--engine', url])
    expect(init.code).toBe(0)
    expect(init.stdout.match(/sits out for \d+ s more/g)).toHaveLength(3)
    const operator = long()
    expect(await voters(operator)).toMatch(/^0 of 3 nodes may vote/)
    await traffic.goesOn() // with the old value
    await allVote(operator)
    const [third, fourth] = [long(), long()]
    for (const [old, changed] of [
      [first, third],
      [second, fourth],
    ] as const) {
      await traffic.remove(old)
      traffic.add(changed)
      await traffic.goesOn()
    }
    // And back.
    for (const old of [third, fourth]) {
      await traffic.remove(old)
      traffic.add(short())
      await traffic.goesOn()
    }
    expect(traffic.broken).toEqual([])
  })
})

describe.concurrent('docs/operating/backup-and-upgrades.md', { timeout: 120_000 }, () => {
  test('servers are upgraded one at a time, from Redis 7.0 to Valkey 8, and a lease is held all the time', async () => {
    await using quorum = await startQuorum({ durable: true }, 3)
    const [holder, first, second, operator] = [1, 2, 3, 4].map(() => quorum.locks()) as [Locks, Locks, Locks, Locks]
    const kept = await holder.acquire('kept')
    await using traffic = new Traffic()
    traffic.add(first)
    traffic.add(second)
    await traffic.goesOn()
    const upgraded: RedisServer[] = []
    try {
      for (const node of quorum.nodes) {
        expect(await voters(operator)).toMatch(/^3 of 3/)
        upgraded.push(await onValkey(node))
        await allAnswer(operator)
        await operator.engine.init!()
        await allVote(operator)
        // The page says to wait for them, two thirds of a ttl.
        for (let renewal = 0; renewal < 2; renewal++) await kept.extend()
        await traffic.goesOn()
        expect(kept.held).toBe(true)
      }
      for (const server of upgraded) expect(await server.cli('INFO', 'server')).toContain('server_name:valkey')
      expect(await kept.release()).toBe(true)
      expect(traffic.broken).toEqual([])
    } finally {
      for (const server of upgraded) await server.stop()
    }
  })

  test.each([
    { step: 'DEL ringfence:stamp', second: false },
    { step: 'EXISTS ringfence:stamp', second: true },
  ])(
    'a young copy that is put back on a durable node after $step makes a second holder: $second',
    async ({ step, second }) => {
      await using quorum = await startQuorum({ durable: true }, 3)
      const [restored] = quorum.nodes
      const { holder, proxy } = await heldOnTwo(quorum)
      await using _proxy = proxy
      await using copy = await copyOf(restored!)
      const lease = await holder.acquire('order')
      await restored!.kill()
      copy.putBack()
      await restored!.restart()
      // Only now clients reach it.
      expect(await restored!.cli(...step.split(' '))).toBe('1')
      const rival = quorum.locks()
      await allAnswer(rival)
      expect(await refused(rival)).toBe(!second)
      expect(lease.held).toBe(true)
    },
  )
})

/** Another server on the same port, with the data of the old one. */
async function onValkey(node: RedisServer): Promise<RedisServer> {
  const data = (await node.cli('CONFIG', 'GET', 'dir')).split('\n')[1]!
  const folder = createFolder('upgraded')
  await node.kill()
  cpSync(data, folder, { recursive: true })
  for (const name of readdirSync(folder, { recursive: true })) giveToServer(path.join(folder, String(name)))
  const server = await startRedisOn(node.port, { valkey: true, durable: true, args: ['--dir', folder] })
  const stop = server.stop.bind(server)
  server.stop = async () => {
    await stop()
    removeFolder(folder)
  }
  return server
}
