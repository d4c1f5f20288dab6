import { describe, expect, onTestFinished, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import { settled } from '../support/manual-clock.ts'
import { fails, Gate, unknown } from '../support/scripted-engine.ts'
import { until } from '../support/until.ts'
import { bench, neighbour, refOf, watched, type Bench } from './bench.ts'

const SPLIT = { kind: 'refused', reason: 'split' } as const

/** The owners of all attempts, in order. */
function owners({ engine }: Bench): string[] {
  return engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request.owner] : []))
}

describe('split votes', () => {
  test('are contended again, with a new owner each time, first in node order', async () => {
    const it = bench()
    it.engine.next.acquire.push(...Array.from({ length: 5 }, () => () => SPLIT))
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(5000)
    expect(lease.state).toBe('resolved')
    const attempts = it.engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request] : []))
    expect(new Set(attempts.map(({ owner }) => owner)).size).toBe(6)
    expect(attempts.map(({ inOrder }) => inOrder)).toEqual([false, true, true, true, false, true])
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

  test('of a waiter that has given up are contended no more: others stand in line behind it', async () => {
    const it = bench()
    it.engine.next.acquire.push(async () => {
      await new Promise<void>((resolve) => void it.clock.timer(resolve, 40))
      return SPLIT
    })
    it.engine.next.acquire.push(...Array.from({ length: 100 }, () => () => SPLIT))
    const controller = new AbortController()
    const lease = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    controller.abort(new Error('enough'))
    await it.clock.advance(1000)
    expect(lease.state).toBe('rejected')
    expect(owners(it)).toHaveLength(1)
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
    expect(it.told()).toEqual(['asked', 'attempt', 'failed', 'denied'])
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
    const waits = [
      it.locks.acquire('a'),
      it.locks.acquire('a'),
      it.locks.acquire('r'),
      it.locks.acquire(['b', 'r']),
    ].map((wait) => watched(wait))
    await it.clock.advance(10)
    await it.locks.close()
    for (const wait of waits) {
      expect(wait).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE', message: 'these locks are closed' } })
    }
    for (const signal of signals) expect(signal.reason).toMatchObject({ reason: 'closed' })
    for (const lease of leases) expect([lease.held, lease.signal.reason]).toMatchObject([false, { reason: 'closed' }])
    expect(await it.leases()).toMatchObject([{ resource: 'r', owner: rival.owner }])
    expect(it.engine.ops.at(-1)).toBe('close')
    expect(it.clock.foregroundTimers).toBe(0)
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
  test('is no longer renewed, warns once, and leaves its resource to run out', async () => {
    const seen = warnings('forgotten')
    const it = bench({ ttl: '30s' })
    const { signal, gone } = await acquireAndForget(it, 'forgotten')
    // From its first renewal on nobody but its user keeps it.
    await it.clock.advance(10_000)
    expect(it.engine.count('extend')).toBe(1)
    await until(
      () => {
        globalThis.gc!()
        return gone.deref() === undefined && signal.aborted
      },
      { what: 'the lease to be collected' },
    )
    await settled()
    expect(seen.map(({ name, code }) => [name, code])).toEqual([['RingfenceWarning', 'RINGFENCE_ABANDONED']])
    expect(seen[0]!.message).toContain('the lease on forgotten was garbage-collected')
    expect(signal.reason).toMatchObject({ reason: 'abandoned' })
    expect(it.events.at(-1)).toMatchObject({ type: 'lost', reason: 'abandoned' })
    await it.clock.advance(29_999)
    expect(it.engine.count('extend')).toBe(1)
    expect(await it.leases()).toHaveLength(1)
    await it.clock.advance(1)
    expect(await it.leases()).toEqual([])
  })

  test('says nothing when it was released, was lost, or is in use', async () => {
    const seen = warnings('kept', 'released', 'lost')
    const it = bench({ ttl: '30s' })
    const kept = await it.locks.acquire('kept')
    const refs: WeakRef<object>[] = []
    await (async () => {
      const released = await it.locks.acquire('released')
      await released.release()
      const lostOne = await it.locks.acquire('lost')
      await it.engine.inner.release(refOf(lostOne))
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
    const seen = warnings('forgotten-by-work')
    const it = bench()
    const gate = new Gate()
    const work = it.locks.using('forgotten-by-work', async () => {
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

function boom(): never {
  throw new Error('boom')
}

/** The warnings about these leases. They are the process's own, and leases of other tests are collected whenever. */
function warnings(...names: string[]): (Error & { code?: string })[] {
  const seen: (Error & { code?: string })[] = []
  const listener = (warning: Error): void => {
    if (names.some((name) => warning.message.includes(`the lease on ${name} was`))) seen.push(warning)
  }
  process.on('warning', listener)
  onTestFinished(() => void process.off('warning', listener))
  return seen
}

/** In a function of its own, so that nothing on the stack keeps the lease. */
async function acquireAndForget(
  { locks }: Bench,
  name: string,
): Promise<{ signal: AbortSignal; gone: WeakRef<object> }> {
  const lease = await locks.acquire(name)
  return { signal: lease.signal, gone: new WeakRef(lease) }
}
