import { expect, onTestFinished, test } from 'vitest'
import { redlock } from '../../../../src/engines/redis/index.ts'
import { QuorumError, type Lease } from '../../../../src/index.ts'
import { until } from '../../../../harness/until.ts'
import { gateTo, ioredis, locksOn, ownerOn, seize, servers, settle } from './bench.ts'

test('bug 1: an even number of nodes with a split vote settles', { timeout: 20_000 }, async () => {
  const four = await servers(4)
  // A minute a node: whoever waits for an answer that can't come, or for a time-out, never gets through this test.
  const engine = () => redlock(four.map(ioredis), { requestTimeout: '60s' })
  const us = locksOn(engine())
  const rival = locksOn(engine())
  await settle(us)

  // Two of four for each side: nobody has the three of a quorum.
  await seize(four.slice(0, 2), 'order')
  expect(await us.locks.tryAcquire('order')).toBeNull()
  const seen = us.events.length
  const waiting = us.locks.acquire('order')
  await us.event('refused', seen)
  await four[0].cli('DEL', 'order')
  const lease = await waiting
  expect(lease.held).toBe(true)
  await lease.release()

  for (let round = 0; round < 20; round++) {
    const resource = `race:${round}`
    const both = await Promise.all([us.locks.tryAcquire(resource), rival.locks.tryAcquire(resource)])
    expect(both.filter((lease) => lease !== null).length).toBeLessThanOrEqual(1)
    // Whoever waits gets it in the end, also if both lost the first race.
    for (const lease of both) await lease?.release()
    const won: Lease[] = []
    await Promise.all(
      [us, rival].map(({ locks }) => locks.using(resource, { wait: '15s' }, (lease) => void won.push(lease))),
    )
    expect(won).toHaveLength(2)
  }
})

test('bug 2: a retry does not meet the key of its own earlier attempt', async () => {
  const [first, second, third] = await servers(3)
  const gates = [await gateTo(first), await gateTo(second)]
  const us = locksOn(redlock([...gates, third].map(ioredis), { requestTimeout: '30s' }))
  await settle(us)
  await seize([first, second], 'order')
  // The third node's grant is heard first, then the two refusals.
  for (const gate of gates) gate.holdReplies('order')
  const partial = us.locks.tryAcquire('order')
  await until(async () => gates.every(({ held }) => held === 1) && (await ownerOn(third, 'order')) !== '', {
    what: 'one node has granted, two have refused',
  })
  for (const gate of gates) gate.open()
  expect(await partial).toBeNull()
  expect(await ownerOn(third, 'order')).toBe('')

  // One rival less: with the third node, which nobody but ourselves can have spoilt, it is a quorum.
  await second.cli('DEL', 'order')
  await using lease = await us.locks.tryAcquire('order')
  expect(lease?.held).toBe(true)
  expect(await ownerOn(third, 'order')).toBe(lease?.owner)
})

test('bug 8: no option lowers the quorum below the majority', async () => {
  const three = await servers(3)
  for (const name of ['quorum', 'minQuorum', 'minimumQuorum', 'quorumSize', 'votes']) {
    expect(() => redlock(three.map(ioredis), { [name]: 1 })).toThrow(`got '${name}'`)
  }
  const us = locksOn(redlock(three.map(ioredis), { requestTimeout: 500 }))
  await settle(us)
  await seize(three.slice(0, 2), 'order')
  expect(await us.locks.tryAcquire('order')).toBeNull()

  await three[0].kill()
  await three[1].kill()
  const failure = await us.locks.tryAcquire('stock').catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(QuorumError)
  expect(failure).toMatchObject({ quorum: 2, size: 3 })

  // Nor does a shorter list, or one server that is given several times.
  const [one, two] = three.map(ioredis)
  expect(() => redlock([one])).toThrow(RangeError)
  expect(() => redlock([one, two])).toThrow(RangeError)
  expect(() => redlock([one, one, one])).toThrow(TypeError)
})

test('bug 14: an extension never re-creates a key to count it', async () => {
  const three = await servers(3)
  const us = locksOn(redlock(three.map(ioredis)), { renew: false })
  const lease = await us.locks.acquire('order')
  for (const node of three.slice(0, 2)) await node.cli('DEL', 'order')
  await expect(lease.extend()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
  expect(lease.signal.aborted).toBe(true)
  expect(await ownerOn(three[0], 'order')).toBe('')
  expect(await ownerOn(three[1], 'order')).toBe('')
})

test('bug 14: a repaired key is not counted as proof of holding', async () => {
  const [first, second, third] = await servers(3)
  const us = locksOn(redlock([first, second, third].map(ioredis)), { renew: false })
  const lease = await us.locks.acquire('order')
  await third.cli('DEL', 'order')
  await lease.extend()
  await until(async () => (await ownerOn(third, 'order')) === lease.owner, { what: 'the third node is repaired' })

  // Between the two a rival may have held the first and the third node; only the second one can vouch for us.
  await first.cli('DEL', 'order')
  await expect(lease.extend()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
  expect(lease.held).toBe(false)
})

test('bug 24: a frozen node stalls neither acquire nor extend nor release', async () => {
  const three = await servers(3)
  const ttlMs = 60_000
  const requestTimeoutMs = 30_000
  const us = locksOn(redlock(three.map(ioredis), { requestTimeout: requestTimeoutMs }), { ttl: ttlMs, renew: false })
  await settle(us)
  await three[0].freeze()
  onTestFinished(() => three[0].thaw())
  // Half of the time that waiting for the frozen node would take.
  const witness = await us.locks.acquire('witness', { ttl: requestTimeoutMs / 2 })

  const lease = await us.locks.acquire('order')
  expect(lease.remaining()).toBeGreaterThan(ttlMs - requestTimeoutMs)
  await lease.extend()
  expect(lease.remaining()).toBeGreaterThan(ttlMs - requestTimeoutMs)
  expect(await lease.release()).toBe(true)
  expect(await us.locks.tryAcquire('witness')).toBeNull()
  expect(witness.held).toBe(true)
})

test('bug 25: no option makes several holders of a resource', async () => {
  const three = await servers(3)
  const clients = three.map(ioredis)
  const us = locksOn(redlock(clients))
  for (const name of ['permits', 'limit', 'maxLeases', 'concurrency']) {
    expect(() => redlock(clients, { [name]: 2 })).toThrow(`got '${name}'`)
    await expect(us.locks.tryAcquire('order', { [name]: 2 })).rejects.toThrow(`got '${name}'`)
  }
  const holders = []
  for (let i = 0; i < 3; i++) holders.push(await us.locks.tryAcquire('order', { ttl: '30s' }))
  expect(holders.filter((lease) => lease !== null)).toHaveLength(1)
})
