import { describe, expect, onTestFinished, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import { settled } from '../support/manual-clock.ts'
import { fails, Gate, unknown } from '../support/scripted-engine.ts'
import { until } from '../support/until.ts'
import { bench, neighbour, watched, type Bench } from './bench.ts'

const SPLIT = { kind: 'refused', reason: 'split' } as const

/** The owners of all attempts, in order. */
function owners({ engine }: Bench): string[] {
  return engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request.owner] : []))
}

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
      ...['acquire', 'handOver', 'handOver', 'handOver', 'release'],
      ...['acquire', 'handOver', 'handOver', 'handOver', 'release'],
      ...['acquire', 'release'],
    ])
  })

  test('is bounded by time', async () => {
    const { clock, engine, locks } = bench({ wait: '1h', handOver: { count: 100, time: 100 } })
    const pause = (): Promise<void> => new Promise((resolve) => void clock.timer(resolve, 30))
    const served = Array.from({ length: 8 }, () => locks.using('a', pause))
    await clock.advance(5000)
    await Promise.all(served)
    expect(engine.ops.filter((op) => op !== 'watch' && op !== 'unwatch')).toEqual([
      ...['acquire', 'handOver', 'handOver', 'handOver', 'release'],
      ...['acquire', 'handOver', 'handOver', 'handOver', 'release'],
    ])
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
    [['a', 'b'], ['b', 'c']],
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
    await it.engine.inner.release({ ...mine, ttlMs: 30_000 })
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

describe('split votes', () => {
  test('are contended again, with a new owner each time, first in node order', async () => {
    const it = bench()
    it.engine.next.acquire.push(...Array.from({ length: 5 }, () => () => SPLIT))
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(5000)
    expect(lease.state).toBe('resolved')
    const attempts = it.engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request] : []))
    expect(new Set(attempts.map(({ owner }) => owner)).size).toBe(6)
    expect(attempts.map(({ afterSplit }) => afterSplit)).toEqual([false, true, true, true, false, true])
    expect(lease.value!.owner).toBe(attempts.at(-1)!.owner)
  })

  test('are given up after some rounds, as held', async () => {
    const it = bench()
    it.engine.next.acquire.push(...Array.from({ length: 100 }, () => () => SPLIT))
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(5000)
    expect(lease).toMatchObject({ state: 'resolved', value: null })
    expect(owners(it).length).toBeLessThan(20)
  })

  test('of a waiter go on until its time is over', async () => {
    const it = bench({ wait: '2s' })
    it.engine.next.acquire.push(...Array.from({ length: 1000 }, () => () => SPLIT))
    const lease = watched(it.locks.acquire('a'))
    await it.clock.advance(2000)
    expect(lease).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT' } })
    expect(new Set(owners(it)).size).toBe(owners(it).length)
  })
})

describe('a grant that came too late', () => {
  test('is released and is an EngineError', async () => {
    const it = bench({ ttl: '1s' })
    it.engine.next.acquire.push(async (_request, pass) => {
      const grant = await pass()
      await new Promise<void>((resolve) => void it.clock.timer(resolve, 900))
      return grant
    })
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(900)
    expect(lease.reason).toBeInstanceOf(EngineError)
    expect(lease.reason).toMatchObject({
      message: 'granted too late: the attempt took 900 ms of a ttl of 1000 ms',
      resources: ['a'],
      transient: true,
    })
    expect(it.engine.ops).toEqual(['acquire', 'release'])
    expect(await it.leases()).toEqual([])
    expect(it.told()).toEqual(['attempt', 'failed'])
  })

  test('counts the wall clock too: the machine may have slept', async () => {
    const it = bench({ ttl: '1s' })
    it.engine.next.acquire.push((_request, pass) => {
      it.clock.jumpWall(950)
      return pass()
    })
    await expect(it.locks.tryAcquire('a')).rejects.toThrow('granted too late')
  })

  test('counts the drift: what is left must be a tenth of the ttl', async () => {
    const it = bench({ ttl: '1s' }, { driftMs: () => 100 })
    const slow = (ms: number): void =>
      void it.engine.next.acquire.push((_request, pass) => {
        it.clock.pass(ms)
        return pass()
      })
    slow(800)
    await expect(it.locks.tryAcquire('a')).rejects.toThrow('granted too late')
    slow(799)
    expect((await it.locks.tryAcquire('a'))!.remaining()).toBe(101)
  })

  test('is tried again by a waiter', async () => {
    const it = bench({ ttl: '1s', wait: '1m' })
    it.engine.next.acquire.push((_request, pass) => {
      it.clock.pass(950)
      return pass()
    })
    const lease = watched(it.locks.acquire('a'))
    await it.clock.advance(1000)
    expect(lease.value!.remaining()).toBeGreaterThan(0)
  })
})

describe('close', () => {
  test('ends all waits, releases all leases, and then closes the engine', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('r', { ttl: '1h' })
    const leases = [await it.locks.acquire('a'), await it.locks.acquire(['b', 'c'])]
    const signals = leases.map(({ signal }) => signal)
    const waits = [it.locks.acquire('a'), it.locks.acquire('a'), it.locks.acquire('r'), it.locks.acquire(['b', 'r'])].map(
      (wait) => watched(wait),
    )
    await it.clock.advance(10)
    await it.locks.close()
    for (const wait of waits) {
      expect(wait).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE', message: 'these locks are closed' } })
    }
    for (const signal of signals) expect(signal.reason).toMatchObject({ reason: 'closed' })
    for (const lease of leases) expect([lease.held, lease.released]).toEqual([false, true])
    expect(await it.leases()).toMatchObject([{ resource: 'r', owner: rival.owner }])
    expect(it.engine.ops.at(-1)).toBe('close')
    expect(it.clock.timers).toBe(1)
  })

  test('waits for an attempt under way and gives its lease back before the engine is closed', async () => {
    for (const how of ['tryAcquire', 'acquire'] as const) {
      const it = bench({ wait: '1h' })
      const gate = new Gate()
      it.engine.next.acquire.push(async (_request, pass) => {
        const grant = await pass()
        await gate.opened
        return grant
      })
      const lease = watched(it.locks[how]('a'))
      await it.clock.advance(10)
      const closing = watched(it.locks.close())
      await it.clock.advance(10)
      expect(closing.state).toBe('pending')
      expect(it.engine.closed).toBe(false)
      gate.open()
      await it.clock.advance(10)
      expect(lease).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE' } })
      expect(it.engine.ops).toEqual(['acquire', 'release', 'close'])
      expect(closing.state).toBe('resolved')
      expect(await it.leases()).toEqual([])
    }
  })

  test('waits for a release under way', async () => {
    const it = bench()
    const lease = await it.locks.acquire('a')
    const gate = new Gate()
    it.engine.next.release.push(async (_lease, pass) => {
      await gate.opened
      return pass()
    })
    const releasing = watched(lease.release())
    const closing = watched(it.locks.close())
    await it.clock.advance(10)
    expect(closing.state).toBe('pending')
    gate.open()
    await it.clock.advance(10)
    expect([releasing.value, closing.state]).toEqual([true, 'resolved'])
  })

  test('is not stopped by a release that fails, and is done once', async () => {
    const it = bench()
    await it.locks.acquire('a')
    await it.locks.acquire('b')
    it.engine.next.release.push(fails(new Error('connection reset')))
    await Promise.all([it.locks.close(), it.locks.close()])
    expect(it.engine.ops).toEqual(['acquire', 'acquire', 'release', 'release', 'close'])
    expect((await it.leases()).map(({ resource }) => resource)).toEqual(['a'])
  })

  test('refuses everything afterwards, without asking the engine', async () => {
    const it = bench()
    await it.locks.close()
    const closed = { code: 'ENGINE', message: 'these locks are closed', transient: false }
    await expect(it.locks.tryAcquire('a')).rejects.toMatchObject(closed)
    await expect(it.locks.acquire('a')).rejects.toMatchObject(closed)
    await expect(it.locks.using('a', () => 1)).rejects.toMatchObject(closed)
    await expect(it.locks.once('a', {}, () => 1)).rejects.toMatchObject(closed)
    await expect(it.locks.elect('a', () => 1)).rejects.toMatchObject(closed)
    expect(it.engine.ops).toEqual(['close'])
  })

  test('leaves no timer behind', async () => {
    const it = bench()
    await it.locks.acquire('a')
    await it.locks.close()
    expect(it.clock.timers).toBe(0)
  })

  test('happens at the end of an `await using` block', async () => {
    const it = bench()
    {
      await using locks = it.locks
      await locks.acquire('a')
    }
    expect(it.engine.closed).toBe(true)
  })
})

describe('a lease that is garbage-collected unreleased', () => {
  function warnings(): (Error & { code?: string })[] {
    const seen: (Error & { code?: string })[] = []
    const listener = (warning: Error): void => void seen.push(warning)
    process.on('warning', listener)
    onTestFinished(() => void process.off('warning', listener))
    return seen
  }

  /** In a function of its own, so that nothing on the stack keeps the lease. */
  async function acquireAndForget({ locks }: Bench, name: string): Promise<{ signal: AbortSignal; gone: WeakRef<object> }> {
    const lease = await locks.acquire(name)
    return { signal: lease.signal, gone: new WeakRef(lease) }
  }

  test('is no longer renewed, warns once, and leaves its resource to run out', async () => {
    const seen = warnings()
    const it = bench({ ttl: '30s' })
    const { signal, gone } = await acquireAndForget(it, 'a')
    await until(
      () => {
        globalThis.gc!()
        return gone.deref() === undefined && signal.aborted
      },
      { what: 'the lease to be collected' },
    )
    await settled()
    expect(seen.map(({ name, code }) => [name, code])).toEqual([['RingfenceWarning', 'RINGFENCE_ABANDONED']])
    expect(seen[0]!.message).toContain('the lease on a was garbage-collected')
    expect(signal.reason).toMatchObject({ reason: 'abandoned' })
    expect(it.events.at(-1)).toMatchObject({ type: 'lost', reason: 'abandoned' })
    await it.clock.advance(29_999)
    expect(it.engine.count('extend')).toBe(0)
    expect(await it.leases()).toHaveLength(1)
    await it.clock.advance(1)
    expect(await it.leases()).toEqual([])
  })

  test('says nothing when it was released, was lost, or is in use', async () => {
    const seen = warnings()
    const it = bench({ ttl: '30s' })
    const kept = await it.locks.acquire('kept')
    const refs: WeakRef<object>[] = []
    await (async () => {
      const released = await it.locks.acquire('released')
      await released.release()
      const lostOne = await it.locks.acquire('lost')
      await it.engine.inner.release({ ...lostOne, ttlMs: 30_000 })
      await it.clock.advance(10_000)
      refs.push(new WeakRef(released), new WeakRef(lostOne))
    })()
    await until(
      () => {
        globalThis.gc!()
        return refs.every((ref) => ref.deref() === undefined)
      },
      { what: 'the leases to be collected' },
    )
    await settled()
    await settled()
    expect(seen).toEqual([])
    expect(kept.held).toBe(true)
  })

  test('is not what happens to the lease of a `using` whose work forgets it', async () => {
    const seen = warnings()
    const it = bench()
    const gate = new Gate()
    const work = it.locks.using('a', async () => {
      await gate.opened
      return 'done'
    })
    await it.clock.advance(0)
    for (let i = 0; i < 5; i++) {
      globalThis.gc!()
      await settled()
    }
    gate.open()
    await expect(work).resolves.toBe('done')
    expect(seen).toEqual([])
  })
})

test('whatever fails, no rejection goes unhandled', async () => {
  const unhandled: unknown[] = []
  const listener = (reason: unknown): void => void unhandled.push(reason)
  process.on('unhandledRejection', listener)
  onTestFinished(() => void process.off('unhandledRejection', listener))
  const it = bench({ ttl: '3s', wait: '1s' })
  const boom = (): never => {
    throw new Error('boom')
  }
  const lease = await it.locks.acquire('a')
  it.engine.next.extend.push(boom, unknown('no answer'), boom)
  const waits = [it.locks.acquire('a'), it.locks.acquire('a', { signal: AbortSignal.timeout(1) })]
  const outcomes = Promise.allSettled(waits)
  await it.clock.advance(2000)
  it.engine.next.release.push(boom, boom, boom)
  it.engine.next.handOver.push(boom)
  it.engine.next.acquire.push(boom, boom)
  await lease[Symbol.asyncDispose]()
  await it.locks.using('b', boom).catch(() => undefined)
  await it.locks.once('c', { atLeast: '1s' }, boom).catch(() => undefined)
  await it.locks.close()
  await it.clock.advance(10_000)
  expect((await outcomes).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  await settled()
  expect(unhandled).toEqual([])
})
