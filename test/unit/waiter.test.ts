import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { EngineError, WaitTimeoutError } from '../../src/errors.ts'
import { instant } from '../../src/clock.ts'
import type { LockEvent } from '../../src/events.ts'
import { fails, Gate } from '../../harness/scripted-engine.ts'
import { bench, neighbour, watched, type Bench } from './bench.ts'

const HELD = { kind: 'refused', reason: 'held', holder: 'rival' } as const

/** Nothing of the waits is left: no timer that keeps the process alive, no lease, and nobody in line. */
async function expectNothingLeft({ clock, locks, leases }: Bench, ...resources: string[]): Promise<void> {
  await clock.advance(0)
  expect(await leases()).toEqual([])
  expect(clock.foregroundTimers).toBe(0)
  for (const resource of resources) {
    // Somebody still in line would be served first, and this would have to wait.
    const lease = watched(locks.acquire(resource))
    await clock.advance(0)
    expect(lease.state).toBe('resolved')
    await lease.value!.release()
  }
  expect(clock.foregroundTimers).toBe(0)
}

describe('waiting', () => {
  test('is first come, first served', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    const order: number[] = []
    const work = Array.from({ length: 50 }, (_, index) =>
      locks.using('a', async () => {
        order.push(index)
        await new Promise<void>((resolve) => void clock.timer(resolve, 10))
      }),
    )
    await clock.advance(60_000)
    await Promise.all(work)
    expect(order).toEqual(work.map((_, index) => index))
  })

  test('costs the servers one attempt at a time, however many wait', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('a', { ttl: '1m' })
    const waiting = Array.from({ length: 100 }, () => watched(it.locks.acquire('a')))
    await it.clock.advance(1000)
    expect(it.engine.count('acquire')).toBe(2)
    expect(it.engine.count('watch')).toBe(1)
    await rival.release()
    await it.clock.advance(100)
    expect(waiting.filter(({ state }) => state === 'resolved')).toHaveLength(1)
  })

  test('for a lease of the same process asks no server until it is over', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s', wait: '1h' })
    const lease = await locks.acquire('a')
    const waiting = watched(locks.acquire('a'))
    await clock.advance(600_000)
    expect(engine.count('acquire')).toBe(1)
    expect(waiting.state).toBe('pending')
    await lease.release()
    await clock.advance(0)
    expect(waiting.state).toBe('resolved')
  })

  test('ends when a lease of the same process ends by itself', async () => {
    const { clock, locks } = bench({ ttl: '10s', renew: false, wait: '1h' })
    await locks.acquire('a')
    const waiting = watched(locks.acquire('a'))
    await clock.advance(10_020)
    expect(waiting.state).toBe('resolved')
  })

  test('ends soon after a release elsewhere, woken, not polling', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('a', { ttl: '30m' })
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(2000)
    expect(it.engine.count('acquire')).toBe(2)
    await rival.release()
    await it.clock.advance(1)
    expect(waiting).toMatchObject({ state: 'resolved', value: { held: true } })
    expect(it.engine.count('acquire')).toBe(3)
  })

  test('ends when the holder has died, as soon as its lease runs out', async () => {
    const it = bench({ wait: '1h' })
    await neighbour(it).acquire('a', { ttl: '30s', renew: false })
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(29_999)
    expect(waiting.state).toBe('pending')
    await it.clock.advance(22)
    expect(waiting.state).toBe('resolved')
  })

  test('arms its watch before the attempt that counts: a release in between is not missed', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('a', { ttl: '30m' })
    const gate = new Gate()
    // The refusal was decided, and before its answer is here the holder is gone.
    it.engine.next.acquire.push(async (_request, pass) => {
      const answer = await pass()
      await gate.opened
      return answer
    })
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(0)
    await rival.release()
    gate.open()
    await it.clock.advance(1)
    expect(waiting.state).toBe('resolved')
    expect(it.engine.ops.slice(0, 3)).toEqual(['acquire', 'watch', 'acquire'])
  })

  test('closes its watch in the end', async () => {
    const it = bench({ wait: '1h' })
    const rival = await neighbour(it).acquire('a')
    const waiting = it.locks.acquire('a')
    await it.clock.advance(10)
    await rival.release()
    await it.clock.advance(10)
    await (await waiting).release()
    expect(it.engine.count('unwatch')).toBe(it.engine.count('watch'))
    await expectNothingLeft(it, 'a')
  })
})

describe('a watch that can not be armed', () => {
  test.each([
    ['says so', { armed: () => Promise.resolve(false) }],
    ['is not there at all', { watch: false }],
  ])('and %s: falls back to polling, ever slower, at least once a second', async (_how, options) => {
    const it = bench({ wait: '1h' }, options)
    await neighbour(it).acquire('a', { ttl: '1h' })
    const waiting = watched(it.locks.acquire('a'))
    const perSecond: number[] = []
    for (let second = 0; second < 20; second++) {
      const before = it.engine.count('acquire')
      await it.clock.advance(1000)
      perSecond.push(it.engine.count('acquire') - before)
    }
    expect(waiting.state).toBe('pending')
    expect(perSecond[0]).toBeGreaterThan(perSecond[19]!)
    expect(perSecond[0]).toBeLessThan(15)
    expect(perSecond.slice(5).every((polls) => polls >= 1 && polls <= 2)).toBe(true)
  })

  test('that rejects ends the wait with its error instead of hanging', async () => {
    const error = new EngineError('no subscriptions here', ['a'], { transient: false })
    const it = bench({ wait: '1h' }, { armed: () => Promise.reject(error) })
    await neighbour(it).acquire('a', { ttl: '1h' })
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(5000)
    expect(waiting).toMatchObject({ state: 'rejected', reason: error })
    expect(it.clock.foregroundTimers).toBe(0)
  })
})

describe('how long to wait', () => {
  test('0 is not at all, with the holder and the time left', async () => {
    const it = bench()
    const rival = await neighbour(it, { label: 'rival' }).acquire('a', { ttl: '5s' })
    await expect(it.locks.acquire('a', { wait: 0 })).rejects.toMatchObject({
      code: 'HELD',
      holder: rival.owner,
      remainingMs: 5000,
      resources: ['a'],
    })
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('a time is until then, with the holder', async () => {
    const it = bench()
    const rival = await neighbour(it, { label: 'rival' }).acquire('a', { ttl: '1h' })
    const waiting = watched(it.locks.acquire('a', { wait: '2s' }))
    await it.clock.advance(1999)
    expect(waiting.state).toBe('pending')
    await it.clock.advance(1)
    expect(waiting.reason).toBeInstanceOf(WaitTimeoutError)
    expect(waiting.reason).toMatchObject({ code: 'WAIT_TIMEOUT', waitMs: 2000, holder: rival.owner })
    await rival.release()
    await expectNothingLeft(it, 'a')
  })

  test('Infinity is for ever', async () => {
    const it = bench()
    const rival = await neighbour(it).acquire('a', { ttl: '2h' })
    const waiting = watched(it.locks.acquire('a', { wait: Infinity }))
    await it.clock.advance(3_600_000)
    expect(waiting.state).toBe('pending')
    await rival.release()
    await it.clock.advance(10)
    expect(waiting.state).toBe('resolved')
  })

  test('is told in the error as the engine’s own failure, when that was what kept us', async () => {
    const it = bench({ wait: '300ms' })
    const error = new EngineError('no answer', ['a'])
    it.engine.next.acquire.push(...Array.from({ length: 100 }, () => fails(error)))
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(300)
    expect(waiting).toMatchObject({ state: 'rejected', reason: error })
  })
})

describe('a failing engine', () => {
  test('is asked again with backoff while the failure may pass', async () => {
    const it = bench({ wait: '1m' }, { watch: false })
    it.engine.next.acquire.push(...Array.from({ length: 4 }, () => fails(new EngineError('no answer', ['a']))))
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(10_000)
    expect(waiting.state).toBe('resolved')
    expect(it.told().filter((type) => type === 'failed')).toHaveLength(4)
    const owners = it.engine.calls.flatMap((call) => (call.op === 'acquire' ? call.request.owner : []))
    expect(new Set(owners).size).toBe(5)
  })

  test('is not asked again when that can not help', async () => {
    const it = bench({ wait: '1m' })
    const error = new EngineError('NOAUTH', ['a'], { transient: false })
    it.engine.next.acquire.push(fails(error))
    await expect(it.locks.acquire('a')).rejects.toBe(error)
    expect(it.engine.count('acquire')).toBe(1)
    await expectNothingLeft(it, 'a')
  })

  test('that rejects with something else is an EngineError with that cause', async () => {
    const it = bench()
    const bug = new TypeError('undefined is not a function')
    it.engine.next.acquire.push(fails(bug))
    await expect(it.locks.acquire('a')).rejects.toMatchObject({
      code: 'ENGINE',
      transient: false,
      cause: bug,
      message: 'scripted: undefined is not a function',
    })
    await expectNothingLeft(it, 'a')
  })

  test('does not stop those behind', async () => {
    const it = bench({ wait: '1m' })
    const error = new EngineError('NOPERM', ['a'], { transient: false })
    it.engine.next.acquire.push(fails(error))
    const [first, second] = [watched(it.locks.acquire('a')), watched(it.locks.acquire('a'))]
    await it.clock.advance(10)
    expect([first.state, second.state]).toEqual(['rejected', 'resolved'])
  })
})

describe('an aborted wait', () => {
  test.each(['head', 'middle', 'end'] as const)(
    'at the %s of the line leaves nothing behind, and the others in order',
    async (place) => {
      const it = bench({ wait: '1h' })
      const rival = await neighbour(it).acquire('a', { ttl: '1h' })
      const controller = new AbortController()
      const gone = { head: 0, middle: 1, end: 2 }[place]
      const served: number[] = []
      const waits = [0, 1, 2].map((index) => {
        const signal = index === gone ? controller.signal : new AbortController().signal
        return it.locks.using('a', { signal }, () => void served.push(index))
      })
      const outcomes = Promise.allSettled(waits)
      await it.clock.advance(10)
      const reason = new Error('changed my mind')
      controller.abort(reason)
      await it.clock.advance(10)
      await rival.release()
      await it.clock.advance(1000)
      const states = (await outcomes).map(({ status }) => status)
      expect(served).toEqual([0, 1, 2].filter((index) => index !== gone))
      expect(states.filter((status) => status === 'rejected')).toHaveLength(1)
      await expect(waits[gone]).rejects.toBe(reason)
      await expectNothingLeft(it, 'a')
    },
  )

  test('during its attempt rejects at once, and gives back what the attempt brings', async () => {
    const it = bench()
    const gate = new Gate()
    it.engine.next.acquire.push(async (_request, pass) => {
      const grant = await pass()
      await gate.opened
      return grant
    })
    const controller = new AbortController()
    const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    const reason = new Error('changed my mind')
    controller.abort(reason)
    await it.clock.advance(0)
    expect(waiting).toMatchObject({ state: 'rejected', reason })
    expect(await it.leases()).toHaveLength(1)
    gate.open()
    await it.clock.advance(0)
    await expectNothingLeft(it, 'a')
  })

  test('during an attempt that fails later does no harm', async () => {
    const it = bench()
    const gate = new Gate()
    it.engine.next.acquire.push(async () => {
      await gate.opened
      throw new EngineError('no answer', ['a'])
    })
    const controller = new AbortController()
    const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    controller.abort()
    gate.open()
    await it.clock.advance(10)
    expect(waiting).toMatchObject({ state: 'rejected', reason: { name: 'AbortError' } })
    await expectNothingLeft(it, 'a')
  })

  test('that was aborted before it began asks nobody', async () => {
    const it = bench()
    const reason = new Error('too late')
    await expect(it.locks.acquire('a', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    expect(it.engine.calls).toEqual([])
  })

  test('while another process gets its turn makes no further attempt', async () => {
    const it = bench({ wait: '1h', handOver: { count: 0 } })
    const lease = await it.locks.acquire('a')
    const controller = new AbortController()
    const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    // Another process waits: the local waiter lets it go first.
    it.engine.next.release.push(async (_lease, pass) => ({ ...(await pass()), awaited: 1 }))
    await lease.release()
    controller.abort()
    const before = it.engine.count('acquire')
    await it.clock.advance(1000)
    expect(waiting.state).toBe('rejected')
    expect(it.engine.count('acquire')).toBe(before)
    await expectNothingLeft(it, 'a')
  })
})

describe('a wait that is over', () => {
  test('during its attempt gives back what the attempt brings', async () => {
    const it = bench()
    const gate = new Gate()
    it.engine.next.acquire.push(async (_request, pass) => {
      await gate.opened
      return pass()
    })
    const waiting = watched(it.locks.acquire('a', { wait: 100 }))
    await it.clock.advance(100)
    expect(waiting).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE' } })
    gate.open()
    await it.clock.advance(0)
    expect(it.engine.ops).toEqual(['acquire', 'release'])
    await expectNothingLeft(it, 'a')
  })

  test('in the middle of the line leaves nothing behind', async () => {
    const it = bench({ wait: '1h' })
    const lease = await it.locks.acquire('a')
    const first = watched(it.locks.acquire('a'))
    const short = watched(it.locks.acquire('a', { wait: 50 }))
    const last = watched(it.locks.acquire('a'))
    await it.clock.advance(50)
    expect(short.state).toBe('rejected')
    await lease.release()
    await it.clock.advance(0)
    expect(first.state).toBe('resolved')
    await first.value!.release()
    await it.clock.advance(0)
    expect(last.state).toBe('resolved')
    await last.value!.release()
    await expectNothingLeft(it, 'a')
  })
})

describe('waiting for several resources', () => {
  test('never deadlocks, in whatever order they are named', async () => {
    const { clock, locks, leases } = bench({ wait: '1h' })
    let most = 0
    let inside = 0
    const section = async (): Promise<void> => {
      most = Math.max(most, ++inside)
      await new Promise<void>((resolve) => void clock.timer(resolve, 5))
      inside--
    }
    const orders = [
      ['a', 'b'],
      ['b', 'a'],
      ['b', 'c', 'a'],
      ['c', 'a'],
      ['c', 'b', 'a'],
    ]
    const work = Array.from({ length: 40 }, (_, index) => locks.using(orders[index % orders.length]!, section))
    await clock.advance(10_000)
    await Promise.all(work)
    // Any two of them share a resource.
    expect(most).toBe(1)
    expect(await leases()).toEqual([])
  })

  test('any crowd is served, each resource by one at a time, and nothing is left', async () => {
    const names = fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1, maxLength: 3 })
    const visit = fc.record({ names, atMs: fc.nat(50), forMs: fc.nat(20), abortMs: fc.option(fc.nat(60)) })
    await fc.assert(
      fc.asyncProperty(fc.array(visit, { minLength: 1, maxLength: 15 }), async (visits) => {
        const it = bench({ wait: '1h' })
        const inside = new Map<string, number>()
        const pause = (ms: number): Promise<void> => new Promise((resolve) => void it.clock.timer(resolve, ms))
        let crowded = false
        const work = visits.map(async ({ names, atMs, forMs, abortMs }) => {
          await pause(atMs)
          const controller = new AbortController()
          if (abortMs !== null) it.clock.timer(() => controller.abort(), abortMs)
          await it.locks.using(names, { signal: controller.signal }, async () => {
            for (const name of names) {
              crowded ||= (inside.get(name) ?? 0) > 0
              inside.set(name, (inside.get(name) ?? 0) + 1)
            }
            await pause(forMs)
            for (const name of names) inside.set(name, inside.get(name)! - 1)
          })
        })
        const outcomes = Promise.allSettled(work)
        await it.clock.advance(5000)
        const failures = (await outcomes).filter(({ status }) => status === 'rejected')
        expect(crowded).toBe(false)
        expect(failures.length).toBeLessThanOrEqual(visits.filter(({ abortMs }) => abortMs !== null).length)
        expect(failures.every((failure) => 'reason' in failure && failure.reason.name === 'AbortError')).toBe(true)
        await expectNothingLeft(it, 'a', 'b', 'c', 'd')
      }),
      { numRuns: 60 },
    )
  })
})

describe('an engine with a queue of its own', () => {
  test('is asked once without waiting, then for a place in its queue, until it is our turn', async () => {
    const turn = new Gate()
    const it = bench(
      { wait: '1h', ttl: '10s' },
      {
        enqueue: async () => {
          await turn.opened
          return { kind: 'granted', token: 7n, since: instant(it.clock) }
        },
      },
    )
    it.engine.next.acquire.push(() => HELD)
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(60_000)
    expect(it.engine.ops).toEqual(['acquire', 'enqueue'])
    turn.open()
    await it.clock.advance(0)
    expect(waiting).toMatchObject({ state: 'resolved', value: { token: 7n } })
    expect(waiting.value!.remaining()).toBe(10_000)
  })

  test('gives up its place when the wait is aborted', async () => {
    const seen: AbortSignal[] = []
    const it = bench(
      { wait: '1h' },
      {
        enqueue: (_request, signal) => {
          seen.push(signal)
          return new Promise((_resolve, reject) => {
            signal.addEventListener('abort', () => reject(new Error('gave up the place')))
          })
        },
      },
    )
    it.engine.next.acquire.push(() => HELD)
    const controller = new AbortController()
    const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    const reason = new Error('changed my mind')
    controller.abort(reason)
    await it.clock.advance(10)
    expect(waiting).toMatchObject({ state: 'rejected', reason })
    expect(seen.map(({ aborted }) => aborted)).toEqual([true])
    expect(it.told()).not.toContain('failed')
    await expectNothingLeft(it, 'a')
  })

  test.each(['asked', 'waiting'] as const)(
    'is not asked for a place by a wait that is aborted in its event %s',
    async (type) => {
      const controller = new AbortController()
      const reason = new Error('the holder is one that I do not wait for')
      const observe = (event: LockEvent): void => {
        if (event.type === type) controller.abort(reason)
      }
      const it = bench({ wait: '1h', observe }, { enqueue: () => new Promise(() => undefined) })
      it.engine.next.acquire.push(() => HELD)
      const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
      await it.clock.advance(10)
      expect(waiting).toMatchObject({ state: 'rejected', reason })
      expect(it.engine.ops).not.toContain('enqueue')
    },
  )

  test('is asked for a place again and again while it has none to give, with growing pauses', async () => {
    const it = bench(
      { wait: '1m' },
      {
        enqueue: async () => {
          throw new EngineError('no room in the queue', ['a'])
        },
      },
    )
    for (let i = 0; i < 1000; i++) it.engine.next.acquire.push(() => HELD)
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(60_000)
    expect(waiting).toMatchObject({ state: 'rejected', reason: { message: 'no room in the queue' } })
    expect(it.engine.count('enqueue')).toBeGreaterThan(30)
    expect(it.engine.count('enqueue')).toBeLessThan(150)
  })

  test('gives back a grant that arrives after the wait was aborted', async () => {
    const gate = new Gate()
    const it = bench(
      { wait: '1h' },
      {
        enqueue: async (request) => {
          await gate.opened
          const grant = await it.engine.inner.acquire(request)
          return { kind: 'granted', token: 'token' in grant ? grant.token : 0n, since: instant(it.clock) }
        },
      },
    )
    it.engine.next.acquire.push(() => HELD)
    const controller = new AbortController()
    const waiting = watched(it.locks.acquire('a', { signal: controller.signal }))
    await it.clock.advance(10)
    controller.abort()
    gate.open()
    await it.clock.advance(10)
    expect(waiting.state).toBe('rejected')
    await expectNothingLeft(it, 'a')
  })
})
