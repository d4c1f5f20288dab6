import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import { bench, watched, type Bench } from './bench.ts'

const SPLIT = { kind: 'refused', reason: 'split', retryWithinMs: 50 } as const

/** The owners of all attempts, in order. */
function owners({ engine }: Bench): string[] {
  return engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request.owner] : []))
}

describe('split votes', () => {
  test('are contended again, with a new owner each time, and the engine hears which round it is', async () => {
    const it = bench()
    it.engine.next.acquire.push(...Array.from({ length: 5 }, () => () => SPLIT))
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(5000)
    expect(lease.state).toBe('resolved')
    const attempts = it.engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request] : []))
    expect(new Set(attempts.map(({ owner }) => owner)).size).toBe(6)
    expect(attempts.map(({ round }) => round)).toEqual([0, 1, 2, 3, 4, 5])
    expect(lease.value!.owner).toBe(attempts.at(-1)!.owner)
  })

  test('are given up, as held, when the engine does not ask for another round', async () => {
    const it = bench()
    const { retryWithinMs, ...last } = SPLIT
    it.engine.next.acquire.push(
      () => SPLIT,
      () => SPLIT,
      () => last,
    )
    const lease = watched(it.locks.tryAcquire('a'))
    await it.clock.advance(3 * retryWithinMs)
    expect(lease).toMatchObject({ state: 'resolved', value: null })
    expect(owners(it)).toHaveLength(3)
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
      message:
        'granted too late: the attempt took 900 ms of a ttl of 1000 ms, and was undone; give it a longer ttl, or let ' +
        'locks.check() say what is slow',
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
