import { expect, test } from 'vitest'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import { EXTEND, RELEASE } from '../../../../src/engines/redis/scripts.ts'
import { until } from '../../../../harness/until.ts'
import {
  aborted,
  fenceOn,
  gateTo,
  gone,
  ioredis,
  locksOn,
  nodeRedisPool,
  ownerOn,
  proxyTo,
  scriptCalls,
  server,
  servers,
  settle,
} from './bench.ts'

test('bug 5: a short lease is renewed three times a ttl, not in a loop', async () => {
  const node = await server()
  const ttlMs = 1800
  const us = locksOn(redis(ioredis(node), { requestTimeout: '5s' }), { ttl: ttlMs })
  await settle(us)
  const from = us.count('renewed')
  await node.cli('CONFIG', 'RESETSTAT')
  const began = performance.now()
  const healthy = await us.locks.acquire('order')
  await until(() => us.count('renewed') >= from + 5, { what: 'five renewals' })
  const calls = await scriptCalls(node)
  // And the acquisition itself.
  expect(calls).toBeLessThanOrEqual((performance.now() - began) / (ttlMs / 3) + 1)
  await healthy.release()

  // Renewals that fail at once.
  const lease = await us.locks.acquire('stock')
  await node.cli('CONFIG', 'RESETSTAT')
  await node.cli('ACL', 'SETUSER', 'default', '-@scripting')
  expect(await aborted(lease.signal)).toMatchObject({ reason: 'unreachable' })
  expect(us.count('doubtful')).toBeGreaterThan(0)
  // Tries come closer together towards the end of the lease, but not in a loop, which would make a hundred.
  expect(await scriptCalls(node)).toBeLessThanOrEqual(20)
})

test('bug 13: after a renewal that failed the lease is renewed again, and the doubt is told', async () => {
  const node = await server()
  const proxy = await proxyTo(node)
  const us = locksOn(redis(ioredis(proxy)), { ttl: 6000 })
  await settle(us)
  const lease = await us.locks.acquire('order')
  proxy.dropReplies(true)
  const doubt = await us.event('doubtful')
  expect(doubt).toMatchObject({ owner: lease.owner, cause: expect.any(Error) as Error })
  expect(doubt.remainingMs).toBeGreaterThan(0)

  proxy.dropReplies(false)
  proxy.reset()
  const told = us.events.indexOf(doubt)
  const renewed = await us.event('renewed', told)
  expect(renewed.owner).toBe(lease.owner)
  // And once more: the watchdog is back for good.
  await us.event('renewed', us.events.indexOf(renewed) + 1)
  expect(lease.signal.aborted).toBe(false)
  expect(await ownerOn(node, 'order')).toBe(lease.owner)
})

test('bug 13: a lease whose key was spoilt does not stop the renewal of the others', async () => {
  const node = await server()
  const us = locksOn(redis(ioredis(node), { requestTimeout: '5s' }), { ttl: 4000 })
  const names = ['order', 'stock', 'card']
  const leases = await Promise.all(names.map((name) => us.locks.acquire(name)))
  // Renewed in one command, and one of the keys is no lock any more.
  await node.cli('EVAL', "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'x')", '1', 'stock')
  const witness = await us.locks.acquire('witness', { renew: false })
  await aborted(witness.signal)
  expect(leases.map(({ held }) => held)).toEqual([true, false, true])
  expect(us.events.filter(({ type }) => type === 'lost')).toMatchObject([{ resources: ['stock'] }, {}])
})

test('bug 19: extend() prolongs the lease that it is called on, and its signal', async () => {
  const node = await server()
  const us = locksOn(redis(ioredis(node)), { ttl: 1000, renew: false })
  const lease = await us.locks.acquire('order')
  const { signal, owner, token } = lease
  const outcome: unknown = await lease.extend('30s')
  const witness = await us.locks.acquire('witness')
  expect(outcome).toBeUndefined()
  expect(lease.remaining()).toBeGreaterThan(1000)

  // By then the time is up that the lease had at first.
  await aborted(witness.signal)
  expect(lease.held).toBe(true)
  expect(signal.aborted).toBe(false)
  expect({ owner: lease.owner, token: lease.token, signal: lease.signal }).toEqual({ owner, token, signal })
  expect(await lease.release()).toBe(true)
  expect(signal.aborted).toBe(true)
})

test('bug 21: a renewal that arrives after the release does not revive the lock', async () => {
  const node = await server()
  const gate = await gateTo(node)
  // A pool: the release takes another connection and overtakes the renewal.
  const us = locksOn(redis(await nodeRedisPool(gate), { requestTimeout: '30s' }), { ttl: 6000 })
  await settle(us)
  const lease = await us.locks.acquire('order')
  gate.holdRequests(EXTEND.sha)
  await until(() => gate.held === 1, { what: 'the renewal is on its way' })
  expect(await lease.release()).toBe(true)
  expect(await ownerOn(node, 'order')).toBe('')

  const before = await scriptCalls(node)
  gate.open()
  await until(async () => (await scriptCalls(node)) > before, { what: 'the renewal has arrived' })
  expect(await ownerOn(node, 'order')).toBe('')
  expect(lease.held).toBe(false)
  expect(us.events.findLast(({ type }) => type === 'renewed' || type === 'released')?.type).toBe('released')
})

test('bug 21: a repair that arrives after the release is undone', async () => {
  const [first, second, third] = await servers(3)
  const gate = await gateTo(third)
  const pool = await nodeRedisPool(gate)
  const us = locksOn(redlock([ioredis(first), ioredis(second), pool], { requestTimeout: '30s' }), { renew: false })
  await settle(us)
  const lease = await us.locks.acquire('order')
  await until(async () => (await ownerOn(third, 'order')) === lease.owner, { what: 'all three nodes have it' })
  await third.cli('DEL', 'order')
  const voted = await fenceOn(third, 'order')
  gate.holdRequests(
    (request) => request.includes('order') && ![EXTEND, RELEASE].some(({ sha }) => request.includes(sha)),
  )
  await lease.extend()
  await until(() => gate.held === 1, { what: 'the repair is on its way' })
  expect(await lease.release()).toBe(true)

  gate.open()
  await until(async () => (await fenceOn(third, 'order')) > voted, { what: 'the repair has arrived' })
  await gone([first, second, third], 'order')
})
