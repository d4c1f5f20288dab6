import { describe, expect, onTestFinished, test } from 'vitest'
import { settled } from '../../harness/manual-clock.ts'
import { fails, Gate, unknown } from '../../harness/scripted-engine.ts'
import type { Locks } from '../../src/locks.ts'
import { bench, neighbour, watched } from './bench.ts'

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
      expect(wait).toMatchObject({
        state: 'rejected',
        reason: { code: 'ENGINE', message: 'these locks are closed; for new ones call createLocks with a new engine' },
      })
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
    const closed = {
      code: 'ENGINE',
      message: 'these locks are closed; for new ones call createLocks with a new engine',
      transient: false,
    }
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

test.each([
  ['tryAcquire', (locks: Locks) => locks.tryAcquire('a')],
  ['acquire', (locks: Locks) => locks.acquire('a')],
])('close() at any moment of %s leaves no lease that is held or renewed', async (_name, acquire) => {
  for (let moments = 0; moments < 40; moments++) {
    const it = bench({ ttl: '3s' })
    const outcome = acquire(it.locks).catch(() => null)
    for (let moment = 0; moment < moments; moment++) await Promise.resolve()
    await it.locks.close()
    expect({ moments, held: (await outcome)?.held ?? false }).toEqual({ moments, held: false })
    await it.clock.advance(10)
    expect({ moments, leases: await it.leases() }).toEqual({ moments, leases: [] })
  }
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
