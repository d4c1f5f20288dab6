import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { Refusal, RoundTrip } from '../../src/engine.ts'
import { memory } from '../../src/engines/memory.ts'
import { EngineError } from '../../src/errors.ts'
import { tell, type LockEvent } from '../../src/events.ts'
import { createLocks } from '../../src/locks.ts'
import { ManualClock, settled } from '../../harness/manual-clock.ts'
import { fails, Gate } from '../../harness/scripted-engine.ts'
import { bench, neighbour, refOf, type Bench } from './bench.ts'

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
    const { call } = events[0] as Extract<LockEvent, { type: 'asked' }>
    const about = { resources: ['a'], owner: lease.owner }
    const token = lease.token
    expect(lease.owner).toMatch(/^[0-9a-f]{32}@here$/)
    expect(events).toEqual([
      { type: 'asked', call, resources: ['a'], waitMs: 10_000, shared: false },
      { type: 'attempt', call, ...about },
      { type: 'granted', call, ...about, token, waitedMs: 0, handedOver: false, shared: false },
      { type: 'renewed', ...about, token, slackMs: 20_000, ttlMs: 30_000 },
      { type: 'doubtful', ...about, token, cause: new Error('no answer'), remainingMs: 20_000 },
      { type: 'renewed', ...about, token, slackMs: 19_000, ttlMs: 30_000 },
      { type: 'released', ...about, token, ours: true, heldMs: 21_000 },
    ])
  })

  test('tell of a wait, from the refusal to the grant', async () => {
    const other = bench({ ttl: '2s' })
    const owner = `${'0'.repeat(32)}@rival`
    const holder = await other.engine.inner.acquire({
      resources: ['a'],
      owner,
      ttlMs: 2000,
    })
    expect(holder.kind).toBe('granted')
    const waiting = other.locks.acquire('a')
    await other.clock.advance(2100)
    const lease = await waiting
    expect(other.told()).toEqual(['asked', 'attempt', 'refused', 'attempt', 'refused', 'waiting', 'attempt', 'granted'])
    expect(other.events[2]).toMatchObject({ type: 'refused', reason: 'held', holder: owner })
    expect(other.events[5]).toMatchObject({ type: 'waiting', resources: ['a'], holder: owner })
    expect(other.events.at(-1)).toMatchObject({ type: 'granted', owner: lease.owner, waitedMs: 2011 })
  })

  test('tell of a loss with its reason, and of no release that was not made', async () => {
    const { clock, engine, locks, told, events } = bench({ ttl: '3s' })
    const lease = await locks.acquire('a')
    await engine.inner.release(refOf(lease))
    await clock.advance(1000)
    expect(told()).toEqual(['asked', 'attempt', 'granted', 'lost'])
    expect(events.at(-1)).toMatchObject({
      type: 'lost',
      owner: lease.owner,
      token: lease.token,
      reason: 'stolen',
      heldMs: 1000,
    })
  })

  test('tell of a lease that is left to run out', async () => {
    const { locks, events } = bench({ ttl: '30s' })
    await locks.once('job', { atLeast: '10s' }, () => undefined)
    expect(events.map(({ type }) => type)).toEqual(['asked', 'attempt', 'granted', 'renewed', 'left'])
    expect(events.at(-1)).toMatchObject({ type: 'left', resources: ['job'], heldMs: 0 })
  })

  test('name the engine, and bring what the engine itself tells', async () => {
    const seen: [LockEvent['type'], string][] = []
    const clock = new ManualClock()
    const trip = { type: 'roundTrip', node: 'a:1', operation: 'acquire', outcome: 'answered', tookMs: 1 } as const
    const engine = Object.assign(memory({ clock }), { observe: (told: (event: RoundTrip) => void) => told(trip) })
    await using locks = createLocks(engine, { clock, observe: (event, name) => void seen.push([event.type, name]) })
    await locks.tryAcquire('a')
    expect(seen).toEqual([
      ['roundTrip', 'memory'],
      ['asked', 'memory'],
      ['attempt', 'memory'],
      ['granted', 'memory'],
    ])
  })

  test('are not even asked for from the engine when nobody observes', async () => {
    const engine = Object.assign(memory(), { observe: vi.fn<() => void>() })
    await using locks = createLocks(engine)
    await locks.using('a', () => undefined)
    expect(engine.observe).not.toHaveBeenCalled()
  })
})

/** What was told of each call's end, and how many began. */
function endings(events: readonly LockEvent[]): { began: number[]; ended: (readonly [number, string])[] } {
  const began = events.filter((event) => event.type === 'asked').map(({ call }) => call)
  const ended = events
    .filter((event) => event.type === 'granted' || event.type === 'denied')
    .map((event) => [event.call, event.type === 'denied' ? event.reason : 'granted'] as const)
  return { began, ended }
}

describe('a call', () => {
  const HELD: Refusal = { kind: 'refused', reason: 'held', holder: 'rival' }
  const down = new EngineError('the server is away', ['a'], { transient: false })

  test('is told of before it returns, in the context of the caller', async () => {
    const context = new AsyncLocalStorage<string>()
    const seen: (string | undefined)[] = []
    const { locks } = bench({ observe: (event) => void (event.type === 'asked' && seen.push(context.getStore())) })
    const calls = [
      context.run('waits', () => locks.acquire('a')),
      context.run('tries', () => locks.tryAcquire('b')),
      context.run('uses', () => locks.using('c', () => undefined)),
      context.run('leads', () => locks.elect('d', () => undefined)),
      context.run('once', () => locks.once('e', {}, () => undefined)),
    ]
    expect(seen).toEqual(['waits', 'tries', 'uses', 'leads', 'once'])
    await Promise.all(calls)
    expect(seen).toHaveLength(5)
  })

  test.each<[string, string, (it: Bench) => Promise<unknown>]>([
    ['granted', 'granted', ({ locks }) => locks.acquire('a')],
    ['granted at the first try', 'granted', ({ locks }) => locks.tryAcquire('a')],
    ['refused', 'held', ({ locks, engine }) => (engine.next.acquire.push(() => HELD), locks.tryAcquire('a'))],
    [
      'refused, with no time to wait',
      'held',
      ({ locks, engine }) => (engine.next.acquire.push(() => HELD), locks.acquire('a', { wait: 0 })),
    ],
    ['failed', 'failed', ({ locks, engine }) => (engine.next.acquire.push(fails(down)), locks.acquire('a'))],
    [
      'failed at the only try',
      'failed',
      ({ locks, engine }) => (engine.next.acquire.push(fails(down)), locks.tryAcquire('a')),
    ],
    [
      'out of time',
      'timeout',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        const call = it.locks.acquire('a', { wait: '5s' })
        await Promise.allSettled([call, it.clock.advance(6000)])
      },
    ],
    [
      'out of time while the engine fails',
      'failed',
      async (it) => {
        for (let i = 0; i < 100; i++) it.engine.next.acquire.push(fails(new EngineError('not now', ['a'])))
        const call = it.locks.acquire('a', { wait: '5s' })
        await Promise.allSettled([call, it.clock.advance(6000)])
      },
    ],
    [
      'aborted',
      'aborted',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        const controller = new AbortController()
        const call = it.locks.acquire('a', { wait: '5s', signal: controller.signal })
        controller.abort()
        await Promise.allSettled([call, it.clock.advance(10)])
      },
    ],
    [
      'closed while it waits',
      'closed',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        const call = it.locks.acquire('a', { wait: '5s' })
        await Promise.allSettled([call, it.locks.close(), it.clock.advance(10)])
      },
    ],
    [
      'closed while it tries',
      'closed',
      async (it) => {
        const gate = new Gate()
        it.engine.next.acquire.push(async (_request, pass) => (await gate.opened, pass()))
        const call = it.locks.tryAcquire('a')
        const closing = it.locks.close()
        gate.open()
        await Promise.allSettled([call, closing])
      },
    ],
  ])('that is %s is told of as such, once', async (_what, ending, make) => {
    const it = bench({ ttl: '30s' })
    await make(it).catch(() => undefined)
    const { began, ended } = endings(it.events)
    expect(began).toHaveLength(1)
    expect(ended).toEqual([[began[0], ending]])
  })

  test('has a number that no call of other locks has', async () => {
    const [one, other] = [bench(), bench()]
    await one.locks.acquire('a')
    await other.locks.acquire('a')
    await one.locks.acquire('b')
    const calls = [...endings(one.events).began, ...endings(other.events).began]
    expect(new Set(calls).size).toBe(3)
  })
})
