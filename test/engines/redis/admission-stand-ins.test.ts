import { expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { copyOf, heldOnTwo, refused } from './admission-quorum.ts'
import { startQuorum } from './faults-quorum.ts'

const HOUR_MS = 3_600_000

test.concurrent('a stand-in with an old copy, up for long, does not vote while a node that was used does not answer', async () => {
  await using quorum = await startQuorum({ clockShift: true, durable: true }, 3)
  const [first, second, third] = quorum.nodes
  for (const node of quorum.nodes) node.shiftClock(-2 * HOUR_MS)
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using copy = await copyOf(first!)
  for (const node of quorum.nodes) node.shiftClock(0)
  const lease = await holder.acquire('order')
  await first!.kill()
  copy.putBack()
  first!.shiftClock(-HOUR_MS)
  await first!.restart()
  first!.shiftClock(0)

  // Only the second one could tell that the quorum was used in the last hour.
  await using line = await startProxy(second!.port)
  line.dropRequests(true)
  const rival = quorum.locks({}, { restart: 'strict' }, [first!.port, line.port, third!.port])
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
})

test.concurrent('a stand-in that started after the last dated use does not vote: what came right behind was not dated', async () => {
  await using quorum = await startQuorum({ clockShift: true, durable: true }, 3)
  const shift = (seconds: number): void => quorum.nodes.forEach((node) => node.shiftClock(seconds * 1000))
  const [first] = quorum.nodes
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using copy = await copyOf(first!)
  // Sits out for 61 s; dated every 10 s, at 0 s for the first time. The stand-in is there from 3 s on, the lease from 8 s on.
  shift(8)
  const lease = await holder.acquire('order', { ttl: '60s' })
  await first!.kill()
  copy.putBack()
  first!.shiftClock(3000)
  await first!.restart()
  shift(65)
  await until(async () => /uptime_in_seconds:6[1-9]/.test(await first!.cli('INFO', 'server')), { what: 'up for 61 s' })

  expect(await refused(quorum.locks({}, { restart: 'strict' }))).toBe(true)
  expect(lease.held).toBe(true)
})

test.concurrent('a stamp that could not be dated is dated with the next use', async () => {
  await using quorum = await startQuorum({ acl: ['app on nopass ~* &* +@all'] }, 3)
  const locks = quorum.locks(
    {},
    {},
    quorum.nodes.map(({ port }) => `redis://app:any@127.0.0.1:${port}`),
  )
  await locks.engine.init!()
  const [node] = quorum.nodes
  const seen = (): Promise<string> => node!.cli('HGET', 'ringfence:stamp', 'seen')
  const founded = await seen()
  for (const { cli } of quorum.nodes.map((one) => ({ cli: one.cli.bind(one) })))
    await cli('ACL', 'SETUSER', 'app', '-hset')
  await (await locks.acquire('order')).release()
  await until(async () => (await node!.cli('ACL', 'LOG')).includes('hset'), { what: 'a stamp that is not dated' })
  expect(await seen()).toBe(founded)
  for (const one of quorum.nodes) await one.cli('ACL', 'SETUSER', 'app', '+hset')
  const isDated = async (): Promise<boolean> => {
    await (await locks.acquire('order')).release()
    return (await seen()) !== founded
  }
  expect(await until(isDated, { what: 'the stamp is dated', everyMs: 50 })).toBe(true)
})

test.concurrent("a durable node with the copy of another durable node's data does not vote", async () => {
  await using quorum = await startQuorum({ durable: true }, 3)
  const [first, , third] = quorum.nodes
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using copy = await copyOf(third!, first)
  const lease = await holder.acquire('order')
  await first!.kill()
  copy.putBack()
  await first!.restart()
  const rival = quorum.locks()
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
  expect(await first!.cli('HGET', 'ringfence:stamp', 'since.level')).toMatch(/[12]/)
})

test.concurrent('a durable replica that was promoted does not vote', async () => {
  await using quorum = await startQuorum({ durable: true }, 3)
  const [first, second, third] = quorum.nodes
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using replica = await startRedis({ durable: true })
  await replica.cli('REPLICAOF', '127.0.0.1', String(first!.port))
  await until(async () => (await replica.cli('INFO', 'replication')).includes('master_link_status:up'), {
    what: 'the replica has the data',
  })
  await replica.cli('REPLICAOF', 'NO', 'ONE')
  const lease = await holder.acquire('order')
  const rival = quorum.locks({}, {}, [replica.port, second!.port, third!.port])
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
  expect(await replica.cli('HGET', 'ringfence:stamp', 'since.level')).toMatch(/[12]/)
})
