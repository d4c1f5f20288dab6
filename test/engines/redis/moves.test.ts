import { expect, test } from 'vitest'
import { LeaseLostError } from '../../../src/errors.ts'
import { until } from '../../../harness/until.ts'
import { allAnswer } from './admission-quorum.ts'
import { lockKeys, restartEmpty, startQuorum } from './faults-quorum.ts'

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

test('without a majority nothing moves: the hand-off rejects and the lease goes on; an adoption rejects and leaves no lease', async () => {
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
  await until(async () => (await Promise.all(quorum.nodes.map(lockKeys))).flat().length === 0, {
    what: 'no key is left',
  })
  await expect(two.adopt(ticket)).rejects.toMatchObject({ code: 'LEASE_LOST' })
})

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
