import { describe, expect, test } from 'vitest'
import type { Refusal } from '../../src/engine.ts'
import type { Random } from '../../src/random.ts'
import { bench, neighbour, watched, type Bench } from './bench.ts'

/** Of another process of ours, renewed all the time. */
const HELD_BY_US = {
  kind: 'refused',
  reason: 'held',
  holder: `${'0'.repeat(32)}@elsewhere`,
  remainingMs: 60_000,
} as const

/** Fractions all over the range, the same each time. */
function uneven(): Random {
  let drawn = 0
  return { id: () => (++drawn).toString(16).padStart(32, '0'), fraction: () => (++drawn * 0.37) % 1 }
}

/** The times of the attempts after the first two, which come before and after the subscription. */
async function looks(refusal: () => Refusal, forMs: number): Promise<{ atMs: number[]; contended: boolean[] }> {
  const it = bench({ wait: '1h', random: uneven() })
  const atMs: number[] = []
  const contended: boolean[] = []
  for (let i = 0; i < 1000; i++) {
    it.engine.next.acquire.push((request) => {
      atMs.push(it.clock.monotonicMs())
      contended.push(request.contended ?? false)
      return refusal()
    })
  }
  const began = it.clock.monotonicMs()
  const waiting = watched(it.locks.acquire('a'))
  await it.clock.advance(forMs)
  expect(waiting.state).toBe('pending')
  return { atMs: atMs.slice(2).map((at) => at - began), contended: contended.slice(2) }
}

/** From the release by another process to the grant here. */
async function freeForMs(it: Bench): Promise<number> {
  const rival = await neighbour(it).acquire('a', { ttl: '1h' })
  const waiting = watched(it.locks.acquire('a'))
  await it.clock.advance(1)
  await rival.release()
  const began = it.clock.monotonicMs()
  while (waiting.state === 'pending') await it.clock.advance(1)
  const tookMs = it.clock.monotonicMs() - began
  await waiting.value!.release()
  return tookMs
}

describe('a release that nobody tells of', () => {
  test('is looked for every few seconds, at different times, while one of ours holds it', async () => {
    const { atMs } = await looks(() => HELD_BY_US, 600_000)
    const pauses = atMs.map((at, index) => at - (atMs[index - 1] ?? 0))
    expect(Math.max(...pauses)).toBeLessThanOrEqual(5001)
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(2500)
    expect(new Set(pauses).size).toBeGreaterThan(3)
  })

  test('is looked for soon while other software holds it, ever more rarely', async () => {
    const { atMs } = await looks(() => ({ ...HELD_BY_US, holder: 'someone' }), 20_000)
    expect(atMs[0]).toBeLessThanOrEqual(32)
    expect(atMs.filter((at) => at <= 1000).length).toBeGreaterThan(5)
    expect(atMs.filter((at) => at > 10_000).length).toBeLessThanOrEqual(41)
    expect(atMs.filter((at) => at > 10_000).length).toBeGreaterThanOrEqual(20)
  })

  test('is looked for at the first pace again whenever another of them has it', async () => {
    let holders = 0
    const { atMs } = await looks(() => ({ ...HELD_BY_US, holder: `someone ${holders++}` }), 2000)
    expect(atMs.length).toBeGreaterThanOrEqual(2000 / 25)
  })

  test('is looked for on the first server alone every other time, so that others are not disturbed', async () => {
    const { contended } = await looks(() => ({ ...HELD_BY_US, holder: 'someone' }), 5000)
    expect(contended.slice(0, 6)).toEqual([false, true, false, true, false, true])
  })

  test('is looked for no later than the lock ends', async () => {
    const { atMs } = await looks(() => ({ ...HELD_BY_US, remainingMs: 100 }), 1000)
    expect(atMs[0]).toBeLessThanOrEqual(107)
  })
})

describe('other software that waits for the same', () => {
  test('is left a free moment by processes of ours that wake each other, for as long as it is around', async () => {
    const it = bench({ wait: '1h' })
    it.engine.next.acquire.push(() => ({ ...HELD_BY_US, holder: 'someone' }))
    await (await it.locks.acquire('a')).release()
    expect(await freeForMs(it)).toBeGreaterThanOrEqual(12)
    await it.clock.advance(5000)
    expect(await freeForMs(it)).toBeLessThanOrEqual(1)
  })
})
