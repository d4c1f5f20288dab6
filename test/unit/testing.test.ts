import { afterEach, describe, expect, test, vi } from 'vitest'
import { viewOf } from '../../harness/engine-view.ts'
import { conformance } from '../../src/conformance/index.ts'
import { EngineError, HeldError, LeaseLostError, WaitTimeoutError } from '../../src/errors.ts'
import { createLocks } from '../../src/locks.ts'
import { ManualClock, TestEngine, testLocks } from '../../src/testing/index.ts'

describe('the engine for tests is an engine', () => {
  const engine = new TestEngine()
  const setup = {
    engine: () => viewOf(engine),
    methods: ['handOver', 'onDoubt', 'watch', 'probe'] as const,
    shared: true,
    async disconnect() {
      for await (const { resource } of engine.inspect()) await engine.lose(resource)
    },
  }
  for (const { name, run } of conformance(setup)) test(name, run)
})

describe('take', () => {
  test('makes a call that does not wait reject with HeldError, with the holder and the time that is left', async () => {
    const { locks, engine } = testLocks()
    await engine.take('order:42', { label: 'worker-7', ttl: '5s' })
    const error = await locks.acquire('order:42', { wait: 0 }).catch((error: unknown) => error)
    expect(error).toBeInstanceOf(HeldError)
    expect(error).toMatchObject({ holder: expect.stringMatching(/@worker-7$/), remainingMs: 5000 })
  })

  test('makes a wait end in a WaitTimeoutError, and a wait that is longer than the lease in a grant', async () => {
    const { locks, engine, clock } = testLocks()
    await engine.take('order:42')
    const short = locks.acquire('order:42', { wait: '10s' }).catch((error: unknown) => error)
    const long = locks.acquire('order:42', { wait: '1m' })
    await clock.advance('10s')
    expect(await short).toBeInstanceOf(WaitTimeoutError)
    await clock.advance('21s')
    expect((await long).token).toBe(2n)
  })

  test('lets in those who wait when the other holder gives it back', async () => {
    const { locks, engine, clock } = testLocks()
    const other = await engine.take('order:42')
    const waiting = locks.acquire('order:42')
    await clock.advance(0)
    await other.release()
    expect((await waiting).token).toBeGreaterThan(other.token)
    expect(clock.monotonicMs()).toBe(new ManualClock().monotonicMs())
  })

  test('takes a lease away: its holder has not noticed at first, and has at the next renewal', async () => {
    const { locks, engine, clock } = testLocks({ ttl: '30s' })
    const lease = await locks.acquire('order:42')
    const other = await engine.take('order:42')
    expect(other.token).toBeGreaterThan(lease.token)
    await clock.advance('1s')
    expect(lease.held).toBe(true)
    await clock.advance('10s')
    expect(lease.held).toBe(false)
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
  })

  test('takes a shared lease away from all who have it', async () => {
    const { locks, engine } = testLocks()
    const readers = [await locks.acquire('list', { shared: true }), await locks.acquire('list', { shared: true })]
    await engine.take('list')
    for (const reader of readers) await expect(reader.extend()).rejects.toMatchObject({ reason: 'stolen' })
  })

  test('makes `using` reject if only its end finds out', async () => {
    const { locks, engine } = testLocks()
    const work = locks.using('order:42', async () => void (await engine.take('order:42')))
    await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'unnoticed' })
  })

  test('refuses options that it does not have', async () => {
    const { engine } = testLocks()
    await expect(engine.take('order:42', { tll: '5s' } as object)).rejects.toThrow(/tll/)
    await expect(engine.take('order:42', { ttl: 0 })).rejects.toThrow(RangeError)
  })
})

describe('lose', () => {
  test('aborts the signal of the holder within a millisecond', async () => {
    const { locks, engine, clock } = testLocks()
    const lease = await locks.acquire('order:42')
    await engine.lose('order:42')
    await clock.advance(1)
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError)
    expect(lease.signal.reason).toMatchObject({ reason: 'stolen' })
  })

  test('says that there is nothing to lose', async () => {
    const { engine } = testLocks()
    await expect(engine.lose('order:42')).rejects.toThrow('order:42: expected a lease to lose, but nobody holds it')
  })
})

describe('outage', () => {
  test('is never reported as held, and is over when the test says so', async () => {
    const { locks, engine } = testLocks()
    engine.outage('the cable is cut')
    await expect(locks.tryAcquire('order:42')).rejects.toThrow('test: the cable is cut')
    await expect(locks.acquire('order:42', { wait: 0 })).rejects.toBeInstanceOf(EngineError)
    await expect(locks.inspect()[Symbol.asyncIterator]().next()).rejects.toBeInstanceOf(EngineError)
    expect(await locks.check()).toEqual([expect.objectContaining({ id: 'test/reachable', severity: 'critical' })])
    expect(await locks.probe()).toEqual([expect.objectContaining({ node: 'test', error: expect.any(String) })])
    engine.recover()
    expect(await locks.tryAcquire('order:42')).not.toBeNull()
  })

  test('leaves a lease in doubt, which ends before its ttl does', async () => {
    const { locks, engine, clock } = testLocks({ ttl: '30s' })
    const lease = await locks.acquire('order:42')
    engine.outage()
    await clock.advance('10s')
    expect(lease.state).toBe('doubtful')
    await clock.advance('20s')
    expect(lease.signal.reason).toMatchObject({ reason: 'unreachable' })
  })

  test('that is short leaves the lease as it was', async () => {
    const { locks, engine, clock } = testLocks({ ttl: '30s' })
    const lease = await locks.acquire('order:42')
    engine.outage()
    await clock.advance('15s')
    engine.recover()
    await clock.advance('2s')
    expect(lease.state).toBe('held')
    expect(await lease.release()).toBe(true)
  })

  test('makes a release reject, because nobody knows what it did', async () => {
    const { locks, engine } = testLocks()
    const lease = await locks.acquire('order:42')
    engine.outage()
    await expect(lease.release()).rejects.toBeInstanceOf(EngineError)
  })
})

describe('the manual clock', () => {
  test('takes durations, and refuses to go back', async () => {
    const clock = new ManualClock()
    const beganMs = clock.wallMs()
    await clock.advance('1h')
    clock.pass('5m')
    await clock.stall('1s')
    expect(clock.wallMs() - beganMs).toBe(3_901_000)
    await expect(clock.advance(-1)).rejects.toThrow(RangeError)
  })

  test('leaves no timer behind when the locks are closed', async () => {
    const { locks, clock } = testLocks()
    await locks.acquire('order:42')
    expect(clock.timers).toBeGreaterThan(0)
    await locks.close()
    expect(clock.timers).toBe(0)
  })

  describe('beside timers of the test runner that are replaced', () => {
    afterEach(() => void vi.useRealTimers())

    test('goes on', async () => {
      vi.useFakeTimers()
      const { locks, clock } = testLocks()
      const lease = await locks.acquire('order:42', { renew: false })
      await clock.advance('30s')
      expect(lease.held).toBe(false)
    })

    test('is not needed: memory with the clock of the system follows them', async () => {
      vi.useFakeTimers()
      const locks = createLocks(new TestEngine())
      const lease = await locks.acquire('order:42', { ttl: '30s', maxHold: '5m' })
      await vi.advanceTimersByTimeAsync(200_000)
      expect(lease.held).toBe(true)
      await vi.advanceTimersByTimeAsync(100_000)
      expect(lease.signal.reason).toMatchObject({ reason: 'max-hold' })
      await locks.close()
    })
  })
})
