import { describe, expect, onTestFinished, test } from 'vitest'
import { tell } from '../../src/events.ts'
import { settled } from '../support/manual-clock.ts'
import { bench, refOf } from './bench.ts'

/** Takes the place of the test runner's own listeners, which would fail the run. */
function uncaughtErrors(): unknown[] {
  const caught: unknown[] = []
  const before = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => void caught.push(error))
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException')
    for (const listener of before) process.on('uncaughtException', listener)
  })
  return caught
}

describe('an observer that throws', () => {
  test('is heard of as an uncaught exception of its own, after the call that told it has gone on', async () => {
    const caught = uncaughtErrors()
    const error = new Error('broken observer')
    tell(
      () => {
        throw error
      },
      { type: 'stalled', lateMs: 1, leases: 1 },
    )
    expect(caught).toEqual([])
    await settled()
    expect(caught).toEqual([error])
  })

  test('breaks neither acquire, renewal, waiting nor release', async () => {
    const caught = uncaughtErrors()
    let told = 0
    const { clock, engine, locks, leases } = bench({
      ttl: '30s',
      wait: '1m',
      observe: () => {
        told++
        throw new Error('broken observer')
      },
    })
    const lease = await locks.acquire('a')
    const waiting = locks.acquire('a')
    await clock.advance(10_000)
    expect(engine.count('extend')).toBe(1)
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    const next = await waiting
    expect(next.held).toBe(true)
    await next.release()
    expect(await leases()).toEqual([])
    await settled()
    expect(told).toBeGreaterThan(5)
    expect(caught).toHaveLength(told)
  })
})

describe('events', () => {
  test('tell the whole life of a lease, in order', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '30s', label: 'here' })
    const lease = await locks.acquire('a')
    await clock.advance(10_000)
    engine.next.extend.push((leases) => leases.map(() => ({ kind: 'unknown', cause: new Error('no answer') })))
    await clock.advance(10_000)
    await clock.advance(1000)
    await lease.release()
    const about = { resources: ['a'], owner: lease.owner }
    const token = lease.token
    expect(lease.owner).toMatch(/^[0-9a-f]{32}@here$/)
    expect(events).toEqual([
      { type: 'attempt', ...about },
      { type: 'granted', ...about, token, waitedMs: 0, handedOver: false },
      { type: 'renewed', ...about, token, slackMs: 20_000 },
      { type: 'doubtful', ...about, token, cause: new Error('no answer'), remainingMs: 20_000 },
      { type: 'renewed', ...about, token, slackMs: 19_000 },
      { type: 'released', ...about, token, ours: true },
    ])
  })

  test('tell of a wait, from the refusal to the grant', async () => {
    const other = bench({ ttl: '2s' })
    const holder = await other.engine.inner.acquire({
      resources: ['a'],
      owner: 'rival',
      ttlMs: 2000,
      inOrder: false,
    })
    expect(holder.kind).toBe('granted')
    const waiting = other.locks.acquire('a')
    await other.clock.advance(2100)
    const lease = await waiting
    expect(other.told()).toEqual(['attempt', 'refused', 'attempt', 'refused', 'waiting', 'attempt', 'granted'])
    expect(other.events[1]).toMatchObject({ type: 'refused', reason: 'held', holder: 'rival' })
    expect(other.events[4]).toMatchObject({ type: 'waiting', resources: ['a'], holder: 'rival' })
    expect(other.events.at(-1)).toMatchObject({ type: 'granted', owner: lease.owner, waitedMs: 2011 })
  })

  test('tell of a loss with its reason, and of no release that was not made', async () => {
    const { clock, engine, locks, told, events } = bench({ ttl: '3s' })
    const lease = await locks.acquire('a')
    await engine.inner.release(refOf(lease))
    await clock.advance(1000)
    expect(told()).toEqual(['attempt', 'granted', 'lost'])
    expect(events.at(-1)).toMatchObject({ type: 'lost', owner: lease.owner, token: lease.token, reason: 'stolen' })
  })
})
