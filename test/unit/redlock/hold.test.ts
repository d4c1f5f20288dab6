import { expect, test } from 'vitest'
import { Hold, type HoldTerms } from '../../../src/redlock/hold.ts'
import { testLocks, type TestLocks } from '../../../src/testing/index.ts'

const MAX_TTL_MS = 60_000
const HOUR_MS = 3_600_000

async function hold(ttl: number, terms: Partial<HoldTerms> = {}): Promise<TestLocks & { lock: Hold; told: Error[] }> {
  const made = testLocks()
  const { locks, clock } = made
  const told: Error[] = []
  const lease = await locks.acquire('order:42', { ttl, renew: false })
  const driftMs = (ttlMs: number): number => made.engine.limits.driftMs(ttlMs)
  const lapsed = (error: Error): void => void told.push(error)
  const lock = new Hold(lease, ttl, { clock, maxTtlMs: MAX_TTL_MS, driftMs, renew: false, lapsed, ...terms })
  return { ...made, lock, told }
}

test('a long lock is proved while the engine answers, and ends when it was to end', async () => {
  const { lock, clock, told, locks } = await hold(HOUR_MS)
  await clock.advance(HOUR_MS - 50_000)
  expect([lock.isProved, lock.lease.held, told]).toEqual([true, true, []])
  expect(lock.lease.remaining()).toBeLessThanOrEqual(50_001)
  expect(await locks.status('order:42')).not.toBeNull()
  await clock.advance(50_000)
  expect([lock.lease.held, told]).toEqual([false, []])
  expect(await locks.status('order:42')).toBeNull()
})

test('it counts as over when no proof has come for as long as a node sits out', async () => {
  const { lock, clock, engine, told } = await hold(HOUR_MS)
  await clock.advance(20_000)
  engine.outage()
  await clock.advance(MAX_TTL_MS - 1000)
  expect([lock.isProved, told]).toEqual([true, []])
  await clock.advance(1000)
  expect(lock.isProved).toBe(false)
  expect(told.map(({ message }) => message)).toEqual([expect.stringContaining('could not be proved')])
  engine.recover()
  await clock.advance(MAX_TTL_MS)
  expect([lock.isProved, told.length]).toEqual([false, 1])
})

test('a proof that says that it is lost is told at once', async () => {
  const { lock, clock, engine, told } = await hold(HOUR_MS)
  await engine.take('order:42')
  await clock.advance(20_000)
  expect([lock.isProved, told.length]).toEqual([false, 1])
})

test('a short lock needs no proof, and a long one none after it was released or made short', async () => {
  const short = await hold(MAX_TTL_MS)
  short.engine.outage()
  await short.clock.advance(MAX_TTL_MS - 1000)
  expect([short.lock.isProved, short.told]).toEqual([true, []])

  const released = await hold(HOUR_MS)
  released.lock.end()
  await released.lock.lease.release()
  const changed = await hold(HOUR_MS)
  await changed.lock.extend(MAX_TTL_MS)
  for (const { engine, clock, told } of [released, changed]) {
    engine.outage()
    await clock.advance(2 * MAX_TTL_MS)
    expect(told).toEqual([])
  }
})
