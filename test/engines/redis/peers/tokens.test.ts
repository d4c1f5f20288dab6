import { expect, test } from 'vitest'
import { systemClock, type Clock } from '../../../../src/clock.ts'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import type { Grant } from '../../../../src/index.ts'
import { until } from '../../../../harness/until.ts'
import { aborted, fenceOn, gateTo, gone, ioredis, locksOn, ownerOn, server, servers } from './bench.ts'

test('bug 9: the number comes with the lock: who was granted first has the lower token, however late it hears of it', async () => {
  const node = await server()
  const gate = await gateTo(node)
  const slow = redis(ioredis(gate), { requestTimeout: '30s' })
  const us = locksOn(redis(ioredis(node)))
  const request = { resources: ['order'], owner: 'slow', ttlMs: 300 }
  const warm = await slow.acquire({ ...request, resources: ['warm'] })
  expect(warm.kind).toBe('granted')

  gate.holdReplies('order')
  const first = slow.acquire(request)
  await until(() => gate.held === 1, { what: 'the first grant' })
  await gone([node], 'order')
  await using second = await us.locks.acquire('order')
  gate.open()
  const grant = await first
  expect(grant.kind).toBe('granted')
  expect((grant as Grant).token).toBeLessThan(second.token)
  expect(await fenceOn(node, 'order')).toBe(second.token)
})

test('bug 10: tokens grow over release, restart and a clock that was set back', async () => {
  const node = await server({ durable: true })
  const tokens: bigint[] = []
  const use = async (clock: Clock): Promise<void> => {
    const us = locksOn(redis(ioredis(node), { clock }), { clock })
    await us.locks.using('order', ({ token }) => void tokens.push(token))
  }
  const anHourBack: Clock = { ...systemClock, wallMs: () => systemClock.wallMs() - 3_600_000 }
  await use(systemClock)
  await use(anHourBack)
  await node.kill()
  await node.restart()
  await use(anHourBack)
  await use(systemClock)
  expect(tokens).toHaveLength(4)
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => Number(a - b)))
})

test('bug 10: tokens grow over the loss of every counter', async () => {
  const three = await servers(3)
  const tokens: bigint[] = []
  const use = async (): Promise<void> => {
    const us = locksOn(redlock(three.map(ioredis)))
    await us.locks.using('order', ({ token }) => void tokens.push(token))
  }
  await use()
  for (const node of three) await node.cli('FLUSHALL')
  await use()
  for (const node of three) {
    await node.kill()
    await node.restart({ empty: true })
  }
  await use()
  expect(tokens).toHaveLength(3)
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => Number(a - b)))
})

test('bug 15: every acquisition has an owner of its own, also from the same locks', async () => {
  const node = await server()
  const us = locksOn(redis(ioredis(node), { requestTimeout: '5s' }), { label: 'same' })
  const expired = await us.locks.acquire('order', { ttl: 200, renew: false })
  const other = await us.locks.acquire('stock')
  await aborted(expired.signal)
  await gone([node], 'order')
  const current = await us.locks.acquire('order')
  expect(new Set([expired.owner, other.owner, current.owner]).size).toBe(3)

  // The old handle speaks for the old lease alone.
  expect(await expired.release()).toBe(false)
  await expect(expired.extend()).rejects.toMatchObject({ code: 'LEASE_LOST' })
  expect(await ownerOn(node, 'order')).toBe(current.owner)
  expect(await ownerOn(node, 'stock')).toBe(other.owner)
  expect(await current.release()).toBe(true)
  expect(await other.release()).toBe(true)
})
