import { expect, onTestFinished, test } from 'vitest'
import { systemClock, type Clock } from '../../../../src/clock.ts'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import { EngineError } from '../../../../src/index.ts'
import { until } from '../../../../harness/until.ts'
import { aborted, gateTo, gone, ioredis, locksOn, ownerOn, server, servers, settle } from './bench.ts'

test('bug 3: a lock whose validity is over when the answer comes is not handed out', async () => {
  const node = await server()
  const gate = await gateTo(node)
  const us = locksOn(redis(ioredis(gate), { requestTimeout: '30s' }), { ttl: 600 })
  await settle(us)

  gate.holdReplies('order')
  const late = us.locks.tryAcquire('order').catch((error: unknown) => error)
  await until(() => gate.held === 1, { what: 'the grant is on its way' })
  await gone([node], 'order')
  gate.open()
  expect(await late).toBeInstanceOf(EngineError)
  expect(us.count('granted')).toBe(1)

  // Whoever is ready to wait gets another one, with time on it.
  gate.holdReplies('stock')
  const waiting = us.locks.acquire('stock')
  await until(() => gate.held === 1, { what: 'the grant is on its way' })
  await gone([node], 'stock')
  gate.open()
  const lease = await waiting
  expect(lease.remaining()).toBeGreaterThan(0)
  expect(await ownerOn(node, 'stock')).toBe(lease.owner)
})

test('bug 4: the signal aborts before validity ends, though a renewal is pending', async () => {
  const three = await servers(3)
  const ttlMs = 2000
  const order: string[] = []
  let over: NodeJS.Timeout | undefined
  // Timers that are due fire in the order of their times, however late: the machine's noise does not matter.
  const count = (): void => {
    clearTimeout(over)
    over = setTimeout(() => order.push('validity over', `held: ${lease.held}`), ttlMs)
  }
  const us = locksOn(redlock(three.map(ioredis), { requestTimeout: '30s' }), {
    ttl: ttlMs,
    observe: ({ type }) => type === 'renewed' && count(),
  })
  await settle(us)
  count()
  const lease = await us.locks.acquire('order')
  lease.signal.addEventListener('abort', () => order.push(`aborted: ${(lease.signal.reason as Error).message}`))
  for (const node of three.slice(0, 2)) {
    await node.freeze()
    onTestFinished(() => node.thaw())
  }
  await until(() => order.includes('validity over'), { what: 'the end of validity' })
  expect(order).toEqual([expect.stringContaining('aborted'), 'validity over', 'held: false'])
  expect(us.count('lost')).toBe(1)
})

test('bug 7: a wall clock that is set back does not make a lease last longer', async () => {
  const three = await servers(3)
  const ttlMs = 1500
  let shiftMs = 0
  const clock: Clock = { ...systemClock, wallMs: () => systemClock.wallMs() + shiftMs }
  const us = locksOn(redlock(three.map(ioredis), { clock }), {
    clock,
    ttl: ttlMs,
    renew: false,
    // Set back an hour at a time, also between the start of an attempt and its answer.
    observe: ({ type }) => type === 'attempt' && (shiftMs -= 3_600_000),
  })
  await settle(us)
  const lease = await us.locks.acquire('order')
  const before = lease.remaining()
  expect(before).toBeLessThan(ttlMs)
  shiftMs -= 3_600_000
  expect(lease.remaining()).toBeLessThanOrEqual(before)
  await until(() => lease.signal.aborted, { what: 'the signal' })
  expect(lease.held).toBe(false)
  expect(lease.remaining()).toBe(0)
})

test('bug 17: the error of the work is what the caller gets, also after a loss or a failed release', async () => {
  const node = await server()
  const us = locksOn(redis(ioredis(node)), { ttl: 3000 })
  const mine = new Error('card declined')
  const lost = us.locks.using('order', async (lease) => {
    await node.cli('DEL', 'order')
    await aborted(lease.signal)
    throw mine
  })
  await expect(lost).rejects.toBe(mine)
  expect(us.count('lost')).toBe(1)

  const unreleased = us.locks.using('order', async () => {
    await node.kill()
    throw mine
  })
  await expect(unreleased).rejects.toBe(mine)
  expect((await us.event('released', us.events.length - 1)).ours).toBe('unknown')
})

test('bug 18: a lost lease that nobody looks after is no unhandled rejection', async () => {
  const unhandled: unknown[] = []
  const collect = (reason: unknown): void => void unhandled.push(reason)
  process.on('unhandledRejection', collect)
  onTestFinished(() => void process.off('unhandledRejection', collect))
  const node = await server()
  const us = locksOn(redis(ioredis(node)), { ttl: 3000 })
  const reasons = (): string[] => us.events.flatMap((event) => (event.type === 'lost' ? event.reason : []))

  const leases = [
    await us.locks.acquire('expires', { renew: false, ttl: 600 }),
    await us.locks.acquire('stolen'),
    await us.locks.acquire('unreachable'),
  ]
  // One with a signal that someone has seen, the others without.
  const { signal } = leases[1]!
  await node.cli('DEL', 'stolen')
  await until(() => reasons().length === 2, { what: 'two are lost' })
  await node.freeze()
  onTestFinished(() => node.thaw())
  await until(() => reasons().length === 3, { what: 'the third is lost' })
  // Its release fails too, and nobody waits for that either.
  await using _forgotten = leases[2]
  await leases[2]!.release().catch(() => undefined)

  expect(reasons().sort()).toEqual(['expired', 'stolen', 'unreachable'])
  expect(signal.aborted).toBe(true)
  // Node tells of unhandled rejections when the microtasks are done.
  await new Promise((resolve) => setImmediate(resolve))
  expect(unhandled).toEqual([])
})
