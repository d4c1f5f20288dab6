import { expect, test } from 'vitest'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import { until } from '../../../../harness/until.ts'
import { gateTo, ioredis, locksOn, server, servers, settle } from './bench.ts'

const WAIT = '20s'
const TTL = '60s'

/** Scripts name the channel too. */
const isSubscription = (request: string): boolean =>
  request.includes('ringfence:freed:') && /\bsubscribe\b/i.test(request)

test('bug 23: a release between the failed attempt and the subscription is noticed', { timeout: 40_000 }, async () => {
  const node = await server()
  const gate = await gateTo(node)
  const holder = locksOn(redis(ioredis(node)), { ttl: TTL })
  const waiter = locksOn(redis(ioredis(gate)), { ttl: TTL })
  const held = await holder.locks.acquire('order')
  gate.holdRequests(isSubscription)
  const waiting = waiter.locks.acquire('order', { wait: WAIT })
  await until(() => gate.held === 1, { what: 'the subscription is on its way' })
  expect(waiter.count('refused')).toBe(1)
  await held.release()
  gate.open()
  const lease = await waiting
  expect(lease.token).toBeGreaterThan(held.token)
  // It stood in line once, and got its turn there.
  expect(waiter.count('waiting')).toBe(1)
})

test('bug 23: on a quorum too', { timeout: 40_000 }, async () => {
  const three = await servers(3)
  const gates = await Promise.all(three.map(gateTo))
  const holder = locksOn(redlock(three.map(ioredis)), { ttl: TTL })
  const waiter = locksOn(redlock(gates.map(ioredis)), { ttl: TTL })
  await settle(holder)
  const held = await holder.locks.acquire('order')
  for (const gate of gates) gate.holdRequests(isSubscription)
  const waiting = waiter.locks.acquire('order', { wait: WAIT })
  await until(() => gates.every((gate) => gate.held === 1), { what: 'the subscriptions are on their way' })
  await held.release()
  for (const gate of gates) gate.open()
  const lease = await waiting
  expect(lease.token).toBeGreaterThan(held.token)
  // It stood in line once, and got its turn there.
  expect(waiter.count('waiting')).toBe(1)
})
