import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import { fails, Gate } from '../../harness/scripted-engine.ts'
import { bench, neighbour, refOf, watched } from './bench.ts'

/** An acquire, three hand-overs, and then the others' turn. */
const CHAIN = ['acquire', 'handOver', 'handOver', 'handOver', 'release']

describe('a hand-over', () => {
  test('gives the lease to the next in line in one step, with a new owner and a higher token', async () => {
    const { clock, engine, locks, events } = bench({ wait: '1h' })
    const first = await locks.acquire('a')
    const waiting = watched(locks.acquire('a', { ttl: '5s' }))
    await clock.advance(10)
    expect(await first.release()).toBe(true)
    await clock.advance(0)
    const second = waiting.value!
    expect(second.token).toBeGreaterThan(first.token)
    expect(second.owner).not.toBe(first.owner)
    expect(second.remaining()).toBe(5000)
    expect(engine.ops).toEqual(['acquire', 'handOver'])
    expect(events.find((event) => event.type === 'granted' && event.owner === second.owner)).toMatchObject({
      handedOver: true,
      waitedMs: 10,
    })
    await second.extend()
    expect(second.held).toBe(true)
  })

  test('is bounded by count: then other processes get their turn', async () => {
    const { clock, engine, locks } = bench({ wait: '1h', handOver: { count: 3, time: '1h' } })
    const served = Array.from({ length: 9 }, () => locks.using('a', () => undefined))
    await clock.advance(1000)
    await Promise.all(served)
    expect(engine.ops.filter((op) => op !== 'watch' && op !== 'unwatch')).toEqual([
      ...CHAIN,
      ...CHAIN,
      'acquire',
      'release',
    ])
  })

  test('is bounded by time', async () => {
    const { clock, engine, locks } = bench({ wait: '1h', handOver: { count: 100, time: 100 } })
    const pause = (): Promise<void> => new Promise((resolve) => void clock.timer(resolve, 30))
    const served = Array.from({ length: 8 }, () => locks.using('a', pause))
    await clock.advance(5000)
    await Promise.all(served)
    expect(engine.ops.filter((op) => op !== 'watch' && op !== 'unwatch')).toEqual([...CHAIN, ...CHAIN])
  })

  test('does not happen with a count of 0, nor on an engine that has none', async () => {
    for (const it of [bench({ handOver: { count: 0 } }), bench({}, { handOver: false })]) {
      const served = [0, 1, 2].map(() => it.locks.using('a', () => undefined))
      await it.clock.advance(1000)
      await Promise.all(served)
      expect(it.engine.count('handOver')).toBe(0)
      expect(it.engine.count('acquire')).toBe(3)
    }
  })

  test('lets another process go first that is known to wait, when the bounds are reached', async () => {
    const it = bench({ wait: '1h', handOver: { count: 0 } })
    const mine = await it.locks.acquire('a')
    const theirs = watched(neighbour(it).acquire('a', { wait: '1h' }))
    const local = watched(it.locks.acquire('a'))
    await it.clock.advance(10)
    await mine.release()
    await it.clock.advance(50)
    expect([theirs.state, local.state]).toEqual(['resolved', 'pending'])
    await theirs.value!.release()
    await it.clock.advance(50)
    expect(local.state).toBe('resolved')
  })

  test('never goes to someone who waits for other resources', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('c', { ttl: '1h' })
    const mine = await it.locks.acquire(['a', 'b'])
    const other = watched(it.locks.acquire(['a', 'c']))
    await it.clock.advance(10)
    await mine.release()
    await it.clock.advance(100)
    expect(other.state).toBe('pending')
    expect(await it.leases()).toMatchObject([{ resource: 'c', owner: rival.owner }])
    await rival.release()
    await it.clock.advance(100)
    expect(other.state).toBe('resolved')
    expect(await it.leases()).toMatchObject([{ resource: 'a' }, { resource: 'c' }])
  })

  test.each([
    [['a'], ['a', 'b']],
    [['a', 'b'], ['a']],
    [
      ['a', 'b'],
      ['b', 'c'],
    ],
  ])('of %j to a waiter for %j is a release and an acquire', async (held, wanted) => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire(held)
    const waiting = watched(it.locks.acquire(wanted))
    await it.clock.advance(10)
    await mine.release()
    await it.clock.advance(100)
    expect(waiting.state).toBe('resolved')
    expect(it.engine.count('handOver')).toBe(0)
    expect((await it.leases()).map(({ resource }) => resource)).toEqual(wanted)
  })

  test('of several resources goes to a waiter for the very same, in whatever order named', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire(['a', 'b'])
    const waiting = watched(it.locks.acquire(['b', 'a']))
    await it.clock.advance(10)
    await mine.release()
    await it.clock.advance(0)
    expect(waiting.state).toBe('resolved')
    expect(it.engine.count('handOver')).toBe(1)
  })

  test('to an heir who gave up meanwhile goes on to the next', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire('a')
    const controller = new AbortController()
    const heir = watched(it.locks.acquire('a', { signal: controller.signal }))
    const next = watched(it.locks.acquire('a'))
    await it.clock.advance(10)
    const gate = new Gate()
    it.engine.next.handOver.push(async (_call, pass) => {
      const grant = await pass()
      await gate.opened
      return grant
    })
    const releasing = mine.release()
    await it.clock.advance(10)
    controller.abort(new Error('changed my mind'))
    await it.clock.advance(10)
    expect(heir).toMatchObject({ state: 'rejected', reason: new Error('changed my mind') })
    gate.open()
    expect(await releasing).toBe(true)
    await it.clock.advance(1000)
    expect(next.state).toBe('resolved')
    await next.value!.release()
    expect(await it.leases()).toEqual([])
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('to an heir who gave up leaves nothing behind when there is nobody else', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire('a')
    const controller = new AbortController()
    const heir = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    it.engine.next.handOver.push((_call, pass) => {
      controller.abort()
      return pass()
    })
    await mine.release()
    await it.clock.advance(10)
    expect(heir.state).toBe('rejected')
    expect(await it.leases()).toEqual([])
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('that is refused tells that the lease was not ours, and the heir makes its own attempt', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire('a')
    const heir = watched(it.locks.acquire('a'))
    await it.clock.advance(10)
    await it.engine.inner.release(refOf(mine))
    expect(await mine.release()).toBe(false)
    await it.clock.advance(0)
    expect(heir.state).toBe('resolved')
    expect(it.engine.ops.slice(0, 3)).toEqual(['acquire', 'handOver', 'acquire'])
  })

  test('that fails rejects the release, and the heir goes on waiting by itself', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire('a', { ttl: '3s' })
    const heir = watched(it.locks.acquire('a'))
    await it.clock.advance(10)
    it.engine.next.handOver.push(fails(new EngineError('no quorum', ['a'])))
    await expect(mine.release()).rejects.toThrow('no quorum')
    expect(it.events).toContainEqual(expect.objectContaining({ type: 'released', owner: mine.owner, ours: 'unknown' }))
    expect(heir.state).toBe('pending')
    // The old lease is still there, for its ttl.
    await it.clock.advance(4000)
    expect(heir.state).toBe('resolved')
  })

  test('that took so long that the lease is nearly over is not accepted but undone', async () => {
    const it = bench({ wait: '1h' })
    const mine = await it.locks.acquire('a')
    const heir = watched(it.locks.acquire('a', { ttl: '1s' }))
    await it.clock.advance(10)
    it.engine.next.handOver.push(async (_call, pass) => {
      const grant = await pass()
      await new Promise<void>((resolve) => void it.clock.timer(resolve, 950))
      return grant
    })
    const releasing = watched(mine.release())
    await it.clock.advance(951)
    expect(releasing).toMatchObject({ state: 'resolved', value: true })
    await it.clock.advance(10)
    expect(heir.value!.remaining()).toBeGreaterThan(900)
  })
})
