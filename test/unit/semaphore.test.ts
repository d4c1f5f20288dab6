import { describe, expect, test } from 'vitest'
import type { Grant, LeaseRequest, QueuedGrant, Refusal } from '../../src/engine.ts'
import { EngineError, HeldError, LeaseLostError, WaitTimeoutError } from '../../src/errors.ts'
import type { PermitLease } from '../../src/lease.ts'
import { systemRandom } from '../../src/random.ts'
import { fails, Gate } from '../../harness/scripted-engine.ts'
import { bench, neighbour, refOf, watched } from './bench.ts'

const cutOff = fails(new EngineError('cut off', []))

const names = (leases: readonly (PermitLease | null)[]): (string | undefined)[] =>
  leases.map((lease) => lease?.resources[0]).toSorted((a, b) => (a! < b! ? -1 : 1))

describe('a permit', () => {
  test('is an exclusive lease of its own, with a number and a token', async () => {
    const { locks, leases } = bench({ random: systemRandom })
    const pool = locks.semaphore('gpu', 3)
    const held = [await pool.acquire(), await pool.acquire(), await pool.acquire()]
    expect(names(held)).toEqual(['gpu#0', 'gpu#1', 'gpu#2'])
    for (const { permit, resources, token, held: isHeld } of held) {
      expect(resources).toEqual([`gpu#${permit}`])
      expect([token, isHeld]).toEqual([1n, true])
    }
    expect(await pool.tryAcquire()).toBeNull()
    await held[1]!.release()
    const again = (await pool.tryAcquire())!
    expect([again.permit, again.token]).toEqual([held[1]!.permit, 2n])
    expect(await leases()).toHaveLength(3)
  })

  test('is waited for by tryAcquire if it is told to, and null if the wait is over first', async () => {
    const it = bench({ wait: '1h' })
    const pool = it.locks.semaphore('gpu', 1)
    const held = await pool.acquire()
    const inVain = watched(pool.tryAcquire({ wait: '2s' }))
    await it.clock.advance(2000)
    expect([inVain.state, inVain.value]).toEqual(['resolved', null])
    const next = watched(pool.tryAcquire({ wait: '2s' }))
    await held.release()
    await it.clock.advance(0)
    expect(next.value?.permit).toBe(0)
    await expect(pool.tryAcquire({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough')
  })

  test('is not asked for any more by tryAcquire once its signal aborts, and what came is given back', async () => {
    const it = bench()
    const pool = it.locks.semaphore('gpu', 3)
    const leaving = new AbortController()
    const asking = watched(pool.tryAcquire({ signal: leaving.signal }))
    leaving.abort(new Error('enough'))
    await it.clock.advance(0)
    expect([asking.state, asking.reason]).toEqual(['rejected', leaving.signal.reason])
    await it.clock.advance(0)
    expect(await it.leases()).toEqual([])
  })

  test('that a greater number adds is free at once, also while others wait with the lower number', async () => {
    const it = bench({ wait: '1h' })
    await it.locks.semaphore('gpu', 1).acquire()
    const behind = watched(it.locks.semaphore('gpu', 1).acquire())
    await it.clock.advance(0)
    const added = watched(it.locks.semaphore('gpu', 2).acquire())
    await it.clock.advance(0)
    expect([behind.state, added.value?.permit]).toEqual(['pending', 1])
  })

  test('is renewed, lost and ended as every lease', async () => {
    const it = bench()
    const pool = it.locks.semaphore('gpu', 2)
    const lost = pool.using({ ttl: '3s' }, async (lease) => {
      await it.clock.advance(10_000)
      expect(lease.held).toBe(true)
      await it.engine.inner.release(refOf(lease))
      await it.clock.advance(3000)
      expect(lease.signal.aborted).toBe(true)
      return 'done'
    })
    await expect(lost).rejects.toThrow(LeaseLostError)
    const short = await pool.acquire({ ttl: '30s', maxHold: '2s' })
    await it.clock.advance(2000)
    expect(short.held).toBe(false)
  })

  test('using runs the work with the permit and releases it', async () => {
    const { locks, leases } = bench()
    const pool = locks.semaphore('gpu', 2)
    expect(await pool.using((lease) => lease.permit)).toBeTypeOf('number')
    expect(await pool.using({ ttl: '5s' }, (lease) => lease.remaining())).toBe(5000)
    await expect(pool.using(() => Promise.reject(new Error('mine')))).rejects.toThrow('mine')
    expect(await leases()).toEqual([])
  })
})

describe('the line of a pool', () => {
  test('is first come, first served, and permits go from hand to hand', async () => {
    const { clock, engine, locks } = bench({ wait: '1h' })
    const pool = locks.semaphore('gpu', 2)
    const first = [await pool.acquire(), await pool.acquire()]
    const waiting = Array.from({ length: 4 }, () => watched(pool.acquire()))
    await clock.advance(10)
    const before = engine.calls.length
    await Promise.all(first.map((lease) => lease.release()))
    await clock.advance(0)
    expect(waiting.map(({ state }) => state)).toEqual(['resolved', 'resolved', 'pending', 'pending'])
    expect(engine.calls.slice(before).map(({ op }) => op)).toEqual(['handOver', 'handOver'])
    await waiting[1]!.value!.release()
    await clock.advance(0)
    expect(waiting.map(({ state }) => state)).toEqual(['resolved', 'resolved', 'resolved', 'pending'])
    expect(waiting[2]!.value!.permit).toBe(waiting[1]!.value!.permit)
  })

  test('asks the servers nothing while all permits are in this process', async () => {
    const { clock, engine, locks } = bench({ wait: '1h' })
    const pool = locks.semaphore('gpu', 2)
    await Promise.all([pool.acquire({ renew: false, ttl: '1h' }), pool.acquire({ renew: false, ttl: '1h' })])
    const before = engine.calls.length
    const waiting = [1, 2, 3].map(() => watched(pool.acquire()))
    await clock.advance(60_000)
    expect(engine.calls.length).toBe(before)
    expect(waiting.map(({ state }) => state)).toEqual(['pending', 'pending', 'pending'])
  })

  test('is shared by all semaphores of that name', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    const held = await locks.semaphore('gpu', 1).acquire()
    const [one, two] = [1, 2].map(() => watched(locks.semaphore('gpu', 1).acquire()))
    await clock.advance(10)
    await held.release()
    await clock.advance(0)
    expect([one!.state, two!.state]).toEqual(['resolved', 'pending'])
  })

  test('lets another process in when the bounds of the hand-over are reached', async () => {
    const it = bench({ wait: '1h', handOver: { count: 2, time: '1h' } })
    const pool = it.locks.semaphore('gpu', 1)
    const theirs = watched(neighbour(it).semaphore('gpu', 1).acquire({ wait: '1h' }))
    await it.clock.advance(0)
    await theirs.value!.release()
    const order: string[] = []
    const ours = Array.from({ length: 6 }, (_, index) => pool.using(() => void order.push(`ours ${index}`)))
    const other = neighbour(it).semaphore('gpu', 1)
    const rival = other.using({ wait: '1h' }, () => void order.push('theirs'))
    await it.clock.advance(60_000)
    await Promise.all([...ours, rival])
    expect(order.filter((who) => who !== 'theirs')).toEqual([0, 1, 2, 3, 4, 5].map((index) => `ours ${index}`))
    expect(order.indexOf('theirs')).toBeLessThan(6)
  })
})

describe('a wait', () => {
  test('takes whichever permit comes free in another process', async () => {
    const it = bench({ wait: '1h' })
    const others = neighbour(it).semaphore('gpu', 3)
    const held = [await others.acquire(), await others.acquire(), await others.acquire()]
    const pool = it.locks.semaphore('gpu', 3)
    for (const lease of held.toReversed()) {
      const waiting = watched(pool.acquire())
      await it.clock.advance(20)
      expect(waiting.state).toBe('pending')
      await lease.release()
      await it.clock.advance(200)
      expect(waiting.value?.permit).toBe(lease.permit)
    }
    expect(await it.leases()).toHaveLength(3)
  })

  test('gets the permit of a holder that is gone when its ttl is over', async () => {
    const it = bench({ wait: '1h' })
    const others = neighbour(it).semaphore('gpu', 2)
    await others.acquire({ renew: false, ttl: '10s' })
    await others.acquire({ renew: true, ttl: '1h' })
    const waiting = watched(it.locks.semaphore('gpu', 2).acquire())
    await it.clock.advance(9900)
    expect(waiting.state).toBe('pending')
    await it.clock.advance(200)
    expect(waiting.state).toBe('resolved')
  })

  test.each([
    [100, 8],
    [1000, 66],
  ])('where all but one of %d permits stay held, finds that one within %d s', async (count, seconds) => {
    const it = bench({ wait: '1h', random: systemRandom })
    const others = neighbour(it, { ttl: '2h' }).semaphore('gpu', count)
    const held: PermitLease[] = []
    for (let index = 0; index < count; index++) held.push((await others.tryAcquire())!)
    const waiting = watched(it.locks.semaphore('gpu', count).acquire())
    await it.clock.advance(5000)
    expect(waiting.state).toBe('pending')
    const before = it.engine.count('acquire')
    await it.clock.advance(seconds * 1000)
    const asked = it.engine.calls.flatMap((call) => (call.op === 'acquire' ? call.request.resources : []))
    expect(new Set(asked.slice(before)).size).toBe(count)
    // Eight that it looks at, and eight that it waits at, which are asked for once more when releases are listened to.
    expect(it.engine.count('acquire') - before).toBeLessThanOrEqual(seconds * 17)
    await held[count / 2]!.release()
    await it.clock.advance(seconds * 1000)
    expect(waiting.value?.permit).toBe(held[count / 2]!.permit)
  })

  test.each([1, 2, 5])('never has more than %d holders, and serves all', async (permits) => {
    const it = bench({ wait: '1h', random: systemRandom })
    const processes = [it.locks, neighbour(it), neighbour(it)]
    let inside = 0
    let most = 0
    const numbers = new Set<number>()
    const work = async (lease: PermitLease): Promise<void> => {
      most = Math.max(most, ++inside)
      expect(numbers.has(lease.permit)).toBe(false)
      numbers.add(lease.permit)
      await new Promise<void>((resolve) => void it.clock.timer(resolve, 7))
      numbers.delete(lease.permit)
      inside--
    }
    const served = Array.from({ length: 90 }, (_, index) =>
      processes[index % 3]!.semaphore('gpu', permits).using({ wait: '1h' }, work),
    )
    await it.clock.advance(3_600_000)
    await Promise.all(served)
    expect(most).toBe(permits)
    expect(await it.leases()).toEqual([])
    for (const locks of processes.slice(1)) await locks.close()
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('that is over says so, whoever has the permits', async () => {
    const it = bench({ wait: '5s' })
    const pool = it.locks.semaphore('gpu', 2)
    const others = neighbour(it).semaphore('gpu', 2)
    await pool.acquire()
    await others.acquire()
    const [first, second] = [watched(pool.acquire()), watched(pool.acquire())]
    await it.clock.advance(1)
    const third = watched(pool.acquire({ wait: 4999 }))
    await it.clock.advance(5000)
    expect(first.reason).toBeInstanceOf(WaitTimeoutError)
    expect(first.reason).toMatchObject({
      message: expect.stringMatching(/^waited 5 s while all 2 permits of 'gpu' were held, by /),
      resources: ['gpu'],
    })
    for (const { reason } of [second, third]) expect(reason).toBeInstanceOf(WaitTimeoutError)
    const nothing = await pool.acquire({ wait: 0 }).catch((error: unknown) => error)
    expect(nothing).toBeInstanceOf(HeldError)
    expect((nothing as Error).message).toMatch(
      /^all 2 permits of 'gpu' were held, by this process, \S+:\d+ \(pool of 2\)/,
    )
    const mutex = it.locks.semaphore('cpu', 1)
    await mutex.acquire()
    const here = watched(mutex.acquire({ wait: '1s' }))
    await it.clock.advance(1000)
    expect((here.reason as Error).message).toBe("waited 1 s while the one permit of 'cpu' was held, by this process")
  })

  test('that was aborted leaves nothing behind, whatever was under way', async () => {
    const it = bench({ wait: '1h' })
    const pool = it.locks.semaphore('gpu', 4)
    const gate = new Gate()
    const late = async (_: unknown, pass: () => Promise<Grant | Refusal>): Promise<Grant | Refusal> => {
      await gate.opened
      return pass()
    }
    it.engine.next.acquire.push(late, late, late)
    const controller = new AbortController()
    const reason = new Error('changed my mind')
    const waiting = [1, 2, 3].map(() => watched(pool.acquire({ signal: controller.signal })))
    await it.clock.advance(10)
    controller.abort(reason)
    await it.clock.advance(10)
    expect(waiting.map((call) => call.reason)).toEqual([reason, reason, reason])
    gate.open()
    await it.clock.advance(100)
    expect(it.engine.count('acquire')).toBe(3)
    expect(await it.leases()).toEqual([])
    expect(it.clock.foregroundTimers).toBe(0)
    await expect(pool.acquire({ signal: controller.signal })).rejects.toBe(reason)
  })

  test('that was aborted while a permit was handed over to it passes the permit on', async () => {
    const it = bench({ wait: '1h' })
    const pool = it.locks.semaphore('gpu', 1)
    const held = await pool.acquire()
    const controller = new AbortController()
    const first = watched(pool.acquire({ signal: controller.signal }))
    const second = watched(pool.acquire())
    const gate = new Gate()
    it.engine.next.handOver.push(async (_, pass) => {
      await gate.opened
      return pass()
    })
    await it.clock.advance(10)
    const released = held.release()
    controller.abort(new Error('changed my mind'))
    gate.open()
    expect(await released).toBe(true)
    await it.clock.advance(1000)
    expect([first.state, second.state]).toEqual(['rejected', 'resolved'])
    expect(await it.leases()).toHaveLength(1)
  })

  test.each([
    ['fails', cutOff],
    ['finds it gone', (): Refusal => ({ kind: 'refused', reason: 'held' })],
    ['is split', (): Refusal => ({ kind: 'refused', reason: 'split' })],
  ])('goes on when a hand-over %s', async (_, step) => {
    const it = bench({ wait: '1h' })
    const pool = it.locks.semaphore('gpu', 2)
    const held = await pool.acquire()
    await pool.acquire({ ttl: '2h' })
    const waiting = watched(pool.acquire())
    await it.clock.advance(10)
    it.engine.next.handOver.push(step)
    await held.release().catch(() => undefined)
    await it.clock.advance(31_000)
    expect(waiting.state).toBe('resolved')
  })

  test('goes on at once when a hand-over leaves the permit with nobody', async () => {
    const it = bench({ wait: '1h' })
    const pool = it.locks.semaphore('gpu', 1)
    const held = await pool.acquire()
    const waiting = watched(pool.acquire())
    await it.clock.advance(10)
    it.engine.next.handOver.push(async ({ lease }) => {
      await it.engine.inner.release(lease)
      return { kind: 'refused', reason: 'split' }
    })
    expect(await held.release()).toBe(true)
    await it.clock.advance(1)
    expect(waiting.state).toBe('resolved')
  })

  test('waits at once for a permit that was released here and taken elsewhere', async () => {
    const it = bench({ wait: '1h', handOver: { count: 0 } })
    const pool = it.locks.semaphore('gpu', 1)
    const held = await pool.acquire()
    const theirs = watched(neighbour(it).semaphore('gpu', 1).acquire({ wait: '1h' }))
    await it.clock.advance(100)
    const waiting = watched(pool.acquire())
    await it.clock.advance(100)
    await held.release()
    await it.clock.advance(100)
    expect([theirs.state, waiting.state]).toEqual(['resolved', 'pending'])
    await theirs.value!.release()
    await it.clock.advance(100)
    expect(waiting.state).toBe('resolved')
  })

  test('of several calls at once asks for another permit each', async () => {
    const { engine, locks } = bench()
    const pool = locks.semaphore('gpu', 4)
    await Promise.all([1, 2, 3, 4].map(() => pool.acquire()))
    expect(engine.count('acquire')).toBe(4)
  })

  test('that is none does not take closed locks for a pool that is full', async () => {
    const it = bench()
    const others = neighbour(it).semaphore('gpu', 2)
    await others.acquire()
    await others.acquire()
    const gate = new Gate()
    it.engine.next.acquire.push(async (_, pass) => {
      await gate.opened
      return pass()
    })
    const trying = watched(it.locks.semaphore('gpu', 2).tryAcquire())
    await it.clock.advance(0)
    const closing = it.locks.close()
    gate.open()
    await closing
    await it.clock.advance(0)
    expect((trying.reason as Error).message).toMatch(/^these locks are closed/)
  })

  test('goes on when a permit is granted at which it does not wait any more', async () => {
    const it = bench({ wait: '1h' })
    const others = neighbour(it, { ttl: '2h' }).semaphore('gpu', 20)
    const held: PermitLease[] = []
    for (let index = 0; index < 20; index++) held.push((await others.tryAcquire())!)
    const gate = new Gate()
    let late = ''
    const refused = Array.from({ length: 27 }, () => (_: unknown, pass: () => Promise<Grant | Refusal>) => pass())
    it.engine.next.acquire.push(...refused, async ({ resources }, pass) => {
      late = resources[0]!
      await gate.opened
      // Nobody else comes in between.
      const freed = it.engine.inner.release(refOf(held.find((lease) => lease.resources[0] === late)!))
      const granted = pass()
      await freed
      return granted
    })
    const waiting = watched(it.locks.semaphore('gpu', 20).acquire())
    // It looks at all of them, waits at eight, and then at others: the answer about the last of the eight comes after that.
    await it.clock.advance(1500)
    expect(it.engine.calls.filter((call) => call.op === 'unwatch').length).toBeGreaterThan(0)
    expect(late).not.toBe('')
    gate.open()
    await it.clock.advance(5000)
    expect(waiting.value?.resources).toEqual([late])
    expect(await it.leases()).toHaveLength(20)
  })

  test('is ended by close', async () => {
    const it = bench({ wait: '1h' })
    await neighbour(it).semaphore('gpu', 2).acquire()
    const pool = it.locks.semaphore('gpu', 2)
    await pool.acquire()
    const waiting = [1, 2, 3].map(() => watched(pool.acquire()))
    await it.clock.advance(10)
    const closing = it.locks.close()
    await it.clock.advance(1000)
    await closing
    for (const { reason } of waiting) expect((reason as Error).message).toMatch(/^these locks are closed/)
    await expect(pool.tryAcquire()).rejects.toThrow('these locks are closed')
    expect(await it.leases()).toHaveLength(1)
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('of a servers’ queue takes a place at each permit, and gives back what it got too much', async () => {
    const places: { request: LeaseRequest; grant: () => Promise<void> }[] = []
    const enqueue = (request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> =>
      new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error))
        const grant = async (): Promise<void> => {
          const since = { monotonicMs: it.clock.monotonicMs(), wallMs: it.clock.wallMs() }
          const granted = (await it.engine.inner.acquire(request)) as Grant
          resolve({ ...granted, since })
        }
        places.push({ request, grant })
      })
    const it = bench({ wait: '1h' }, { enqueue })
    const others = neighbour(it).semaphore('gpu', 3)
    const held = [await others.acquire(), await others.acquire(), await others.acquire()]
    const waiting = watched(it.locks.semaphore('gpu', 3).acquire())
    await it.clock.advance(1500)
    expect(new Set(places.map(({ request }) => request.resources[0]))).toEqual(new Set(['gpu#0', 'gpu#1', 'gpu#2']))
    await held[0]!.release()
    await held[1]!.release()
    const freed = places.filter(({ request }) => request.resources[0] !== `gpu#${held[2]!.permit}`)
    await Promise.all(freed.map(({ grant }) => grant()))
    await it.clock.advance(10)
    expect(waiting.state).toBe('resolved')
    expect(await it.leases()).toHaveLength(2)
  })

  test('does not take an outage for a pool that is full', async () => {
    const it = bench({ wait: '2s' })
    it.engine.next.acquire.push(...Array.from({ length: 500 }, () => cutOff))
    const pool = it.locks.semaphore('gpu', 4)
    await expect(pool.tryAcquire()).rejects.toThrow(EngineError)
    expect(it.engine.count('acquire')).toBe(1)
    const [first, second] = [watched(pool.acquire()), watched(pool.acquire())]
    await it.clock.advance(2000)
    for (const { reason } of [first, second]) expect((reason as Error).message).toContain('cut off')
    it.engine.next.acquire.splice(0)
    const after = watched(pool.acquire())
    await it.clock.advance(100)
    expect(after.state).toBe('resolved')
  })

  test('goes on when the engine answers again', async () => {
    const it = bench({ wait: '1h' })
    it.engine.next.acquire.push(...Array.from({ length: 20 }, () => cutOff))
    const pool = it.locks.semaphore('gpu', 2)
    const waiting = [1, 2].map(() => watched(pool.acquire()))
    await it.clock.advance(60_000)
    expect(waiting.map(({ state }) => state)).toEqual(['resolved', 'resolved'])
  })

  test('ends with what cannot help to repeat', async () => {
    const it = bench({ wait: '1h' })
    it.engine.next.acquire.push(fails(new EngineError('no permission', [], { transient: false })))
    await expect(it.locks.semaphore('gpu', 2).acquire()).rejects.toThrow('no permission')
  })
})

describe('a thousand permits', () => {
  test('half of them free: a permit is found by one or two attempts', async () => {
    const it = bench({ random: systemRandom })
    const others = neighbour(it, { ttl: '2h', random: systemRandom }).semaphore('gpu', 1000)
    for (let index = 0; index < 500; index++) await others.tryAcquire()
    const attempts: number[] = []
    for (let index = 0; index < 200; index++) {
      // A semaphore of its own each time: nothing is remembered.
      const before = it.engine.count('acquire')
      const lease = await it.locks.semaphore('gpu', 1000).acquire()
      attempts.push(it.engine.count('acquire') - before)
      await lease.release()
    }
    attempts.sort((a, b) => a - b)
    expect(attempts[100]).toBeLessThanOrEqual(2)
    const pool = it.locks.semaphore('gpu', 1000)
    const seen = new Set<number>()
    const before = it.engine.count('acquire')
    for (let index = 0; index < 400; index++) seen.add((await pool.acquire()).permit)
    // What was seen held is not asked for again.
    expect(seen.size).toBe(400)
    expect(it.engine.count('acquire') - before).toBeLessThanOrEqual(900)
  })
})

describe('the number of permits', () => {
  test('may be raised, and lowered: those above finish', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    const four = locks.semaphore('gpu', 4)
    const held = [await four.acquire(), await four.acquire(), await four.acquire(), await four.acquire()]
    const two = locks.semaphore('gpu', 2)
    const waiting = watched(two.acquire())
    await clock.advance(10)
    for (const lease of held.filter(({ permit }) => permit >= 2)) await lease.release()
    await clock.advance(2000)
    expect(waiting.state).toBe('pending')
    for (const lease of held.filter(({ permit }) => permit === 1)) await lease.release()
    await clock.advance(10)
    expect(waiting.value?.permit).toBe(1)
    expect(await two.tryAcquire()).toBeNull()
    expect((await locks.semaphore('gpu', 3).tryAcquire())?.permit).toBe(2)
  })

  test.each([0, -1, 1.5, 1001, Infinity, Number.NaN])('is refused if it is %s', (permits) => {
    const { locks } = bench()
    expect(() => locks.semaphore('gpu', permits)).toThrow(
      new RangeError(
        `permits: expected a whole number from 1 to 1000, got ${permits}; write how many may hold it at a time, as in semaphore('gpu', 4)`,
      ),
    )
  })

  test('is refused if it is none', () => {
    const { locks } = bench()
    expect(() => locks.semaphore('gpu', '4' as unknown as number)).toThrow(TypeError)
    expect(() => locks.semaphore('gpu', undefined as unknown as number)).toThrow('got undefined')
  })
})

describe('bad input', () => {
  test.each([
    ['an empty name', '', 'resource: expected a name, got an empty string'],
    ['the name of a permit', 'gpu#3', "does not end like the name of a permit, got 'gpu#3'"],
    ['a name that is too long with the number', 'g'.repeat(1022), 'resource: expected at most 1024 bytes, got 1025'],
  ])('%s', (_, name, message) => {
    const { locks } = bench()
    expect(() => locks.semaphore(name, 11)).toThrow(message)
  })

  test('options that a permit has not', async () => {
    const { locks } = bench()
    const pool = locks.semaphore('gpu', 2)
    await expect(pool.acquire({ shared: true } as object)).rejects.toThrow(
      'shared: expected no such option of a semaphore',
    )
    await expect(pool.acquire({ timeout: 5 } as object)).rejects.toThrow('did you mean wait?')
    await expect(pool.tryAcquire({ reentrant: true } as object)).rejects.toThrow("got 'reentrant'")
    await expect(pool.using({ ttl: 5 }, () => undefined)).rejects.toThrow('ttl: expected at least 50 ms')
    await expect(pool.using('x' as unknown as () => void)).rejects.toThrow('work: expected a function')
    await expect((pool.using as (...all: unknown[]) => Promise<void>)({}, () => undefined, 3)).rejects.toThrow(
      'using: expected options and the work, got 3 arguments',
    )
  })
})

test('a call has one beginning and one end in the events, and the lease names its permit', async () => {
  const it = bench({ wait: '1h' })
  const others = neighbour(it).semaphore('gpu', 2)
  const held = [await others.acquire(), await others.acquire()]
  const pool = it.locks.semaphore('gpu', 2)
  const waiting = watched(pool.acquire())
  await it.clock.advance(100)
  await held[0]!.release()
  await it.clock.advance(200)
  const ofCall = it.events.filter((event) => 'call' in event)
  expect(new Set(ofCall.map(({ call }) => call)).size).toBe(1)
  expect(it.events.filter(({ type }) => type === 'asked')).toMatchObject([{ resources: ['gpu'], waitMs: 3_600_000 }])
  expect(it.events.filter(({ type }) => type === 'granted')).toMatchObject([
    { resources: waiting.value!.resources, waitedMs: expect.any(Number) as number },
  ])
  expect(it.told()).not.toContain('denied')
  expect(await pool.tryAcquire()).toBeNull()
  expect(it.events.at(-1)).toMatchObject({ type: 'denied', resources: ['gpu'], reason: 'held' })
})

test('an observer may abort a wait as it begins', async () => {
  const controller = new AbortController()
  const it = bench({ observe: ({ type }) => void (type === 'asked' && controller.abort(new Error('not now'))) })
  await expect(it.locks.semaphore('gpu', 2).acquire({ signal: controller.signal })).rejects.toThrow('not now')
  expect(it.engine.count('acquire')).toBe(0)
})

test('the error of a full pool names those who have its permits, as far as they were seen', async () => {
  const it = bench()
  const others = ['alice', 'bob', 'carol', 'dave'].map((label) => neighbour(it, { label }).semaphore('gpu', 4))
  for (const pool of others) await pool.acquire()
  const pool = it.locks.semaphore('gpu', 4)
  await expect(pool.acquire({ wait: 0 })).rejects.toThrow(
    /^all 4 permits of 'gpu' were held, by (\w+ \(pool of 4\), ){2}\w+ \(pool of 4\) and 1 more$/,
  )
  const late = watched(pool.acquire({ wait: 500 }))
  await it.clock.advance(500)
  expect(String(late.reason)).toMatch(/waited 500 ms while all 4 permits of 'gpu' were held, by \w+ \(pool of 4\)/)
})
