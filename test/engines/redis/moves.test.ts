import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { LeaseLostError } from '../../../src/errors.ts'
import { until } from '../../../harness/until.ts'
import { allAnswer } from './admission-quorum.ts'
import { lockKeys, restartEmpty, startQuorum } from './faults-quorum.ts'

/** As soon as what was under way has arrived. */
async function ownedBy(nodes: readonly RedisServer[], owner: string): Promise<void> {
  const areIts = async (): Promise<boolean> =>
    (await Promise.all(nodes.map((node) => node.cli('GET', 'moved')))).every((value) => value === owner)
  await until(areIts, { what: 'every server has it as that of its owner' })
}

test('of many processes with one ticket at most one adopts it, and the others leave nothing behind', async () => {
  await using quorum = await startQuorum({}, 3)
  const ticket = await (await quorum.locks({ ttl: '60s' }).acquire('moved')).handOff()
  const workers = Array.from({ length: 6 }, () => quorum.locks())
  const outcomes = await Promise.allSettled(workers.map((worker) => worker.adopt(ticket)))
  const adopted = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []))
  expect(adopted.length).toBeLessThanOrEqual(1)
  for (const outcome of outcomes) {
    const reason: unknown = outcome.status === 'rejected' ? outcome.reason : new LeaseLostError([], 'stolen')
    expect(reason).toMatchObject({ code: 'LEASE_LOST' })
  }
  for (const lease of adopted) expect(await lease.release()).toBe(true)
  await until(async () => (await Promise.all(quorum.nodes.map(lockKeys))).flat().length === 0, {
    what: 'no key is left',
  })
})

test('a lease moves while a minority is silent, and the key that stays there is in nobody’s way', async () => {
  await using quorum = await startQuorum({}, 3)
  const [one, two] = [quorum.locks({ ttl: '60s' }), quorum.locks({ ttl: '60s' })]
  const first = await one.acquire('moved')
  await quorum.nodes[0]!.freeze()
  const lease = await two.adopt(await first.handOff())
  expect(lease.token).toBeGreaterThan(first.token)
  await quorum.nodes[0]!.thaw()
  await lease.extend()
  expect(await one.tryAcquire('moved')).toBeNull()
  expect(await lease.release()).toBe(true)
  const next = await one.acquire('moved', { wait: '20s' })
  expect(next.token).toBeGreaterThan(lease.token)
})

test('a process that has not handed its lease off loses it at its next renewal', async () => {
  await using quorum = await startQuorum({}, 3)
  const first = await quorum.locks({ ttl: '10s' }).acquire('moved')
  const lost = new Promise((resolve) => first.signal.addEventListener('abort', () => resolve(first.signal.reason)))
  const lease = await quorum.locks().adopt(first.toJSON())
  expect(await lost).toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
  expect(lease.held).toBe(true)
})

test('an adoption into locks that are closed in the middle leaves the lease to its holder', async () => {
  await using quorum = await startQuorum({}, 3)
  const [one, two] = [quorum.locks({ ttl: '60s' }), quorum.locks()]
  await (await two.acquire('warm')).release()
  const lease = await one.acquire('moved')
  const adopting = two.adopt(lease.toJSON())
  const closing = two.close()
  await expect(adopting).rejects.toThrow('these locks are closed')
  await closing
  await ownedBy(quorum.nodes, lease.owner)
  await lease.extend()
  expect(await quorum.locks().tryAcquire('moved')).toBeNull()
  expect(await lease.release()).toBe(true)
})

test('without a majority nothing moves: the hand-off rejects and the lease goes on; an adoption rejects, and the ticket is as good as before', async () => {
  await using quorum = await startQuorum({}, 3)
  const [one, two] = [quorum.locks({ ttl: '60s' }), quorum.locks({ ttl: '60s' })]
  const lease = await one.acquire('moved')
  const majority = quorum.nodes.slice(0, 2)
  await Promise.all(majority.map((node) => node.freeze()))
  await expect(lease.handOff()).rejects.toMatchObject({
    code: 'ENGINE',
    message: expect.stringMatching(/^could not hand off: no quorum/) as string,
  })
  expect(lease.held).toBe(true)
  await Promise.all(majority.map((node) => node.thaw()))
  await lease.extend()
  const ticket = await lease.handOff()
  await Promise.all(majority.map((node) => node.freeze()))
  await expect(two.adopt(ticket)).rejects.toMatchObject({ code: 'QUORUM' })
  await Promise.all(majority.map((node) => node.thaw()))
  await ownedBy(quorum.nodes, ticket.owner)
  const adopted = await two.adopt(ticket)
  expect(adopted.token).toBeGreaterThan(BigInt(ticket.token))
  expect(await adopted.release()).toBe(true)
  await expect(one.adopt(ticket)).rejects.toMatchObject({ code: 'LEASE_LOST' })
})

test.each([1, 3])(
  'an adoption whose outcome is unknown gives the lease back to a holder that goes on (%d servers)',
  async (size) => {
    await using quorum = await startQuorum({}, size)
    const ports = quorum.nodes.map(({ port }) => port)
    const single = new Redis(ports[0]!).on('error', () => undefined)
    const make = (): Locks => (size === 1 ? createLocks(redis(single, { requestTimeout: '1s' })) : quorum.locks())
    const [one, two, rival] = [make(), make(), make()]
    const lease = await one.acquire('moved', { ttl: '60s', renew: false })
    await ownedBy(quorum.nodes, lease.owner)
    const silent = quorum.nodes.slice(0, Math.ceil(size / 2))
    await Promise.all(silent.map((node) => node.freeze()))
    await expect(two.adopt(lease.toJSON())).rejects.toMatchObject({ code: size === 1 ? 'ENGINE' : 'QUORUM' })
    await Promise.all(silent.map((node) => node.thaw()))
    await ownedBy(quorum.nodes, lease.owner)
    await lease.extend()
    expect(lease.held).toBe(true)
    expect(await rival.tryAcquire('moved')).toBeNull()
    const adopted = await two.adopt(lease.toJSON())
    await expect(lease.extend()).rejects.toMatchObject({ code: 'LEASE_LOST' })
    expect(await adopted.release()).toBe(true)
    await Promise.all([one, two, rival].map((locks) => locks.close()))
    single.disconnect()
  },
)

test('a used ticket is refused, although one node never heard of its use and another has forgotten it', async () => {
  await using quorum = await startQuorum({}, 3)
  const [, forgetful, unaware] = quorum.nodes
  const ticket = await (await quorum.locks({ ttl: '60s' }).acquire('moved')).handOff()
  const lease = await quorum.locks().adopt(ticket)
  await restartEmpty(forgetful!)
  // As it would be with an old copy of its data, and without the message.
  for (const node of [forgetful!, unaware!]) await node.cli('SET', 'moved', ticket.owner, 'PX', '60000')
  const late = quorum.locks()
  await allAnswer(late)
  await expect(late.adopt(ticket)).rejects.toMatchObject({ code: 'QUORUM' })
  expect(lease.held).toBe(true)
})

test('a ticket with other names than its lease moves nothing, and the lease goes on', async () => {
  await using quorum = await startQuorum({}, 3)
  const lease = await quorum.locks({ ttl: '60s' }).acquire('moved')
  const [other, rival] = [quorum.locks(), quorum.locks()]
  const names = [...lease.resources, 'zz']
  await expect(other.adopt({ ...lease.toJSON(), resources: names })).rejects.toMatchObject({ code: 'LEASE_LOST' })
  const own = { ...lease.toJSON(), resources: ['ringfence:fence:{moved}'] }
  await expect(other.adopt(own)).rejects.toThrow(RangeError)
  await other.close()
  expect(await rival.tryAcquire('moved')).toBeNull()
  await lease.extend()
})
