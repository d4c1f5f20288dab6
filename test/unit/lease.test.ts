import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../src/errors.ts'
import { LeaseRecord } from '../../src/lease-record.ts'
import { instant } from '../../src/clock.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { fails, Gate, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, watched } from './bench.ts'

describe('a lease', () => {
  test('has an owner of its own, its resources in order, and a token above all before', async () => {
    const { locks } = bench()
    const first = await locks.acquire(['b', 'a', 'b'])
    expect(first.resources).toEqual(['a', 'b'])
    await first.release()
    const second = await locks.acquire('b')
    expect(second.token).toBeGreaterThan(first.token)
    expect(second.owner).not.toBe(first.owner)
    expect(typeof second.token).toBe('bigint')
  })

  test('computes its validity now: ttl less drift less what has passed since before the attempt', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s', renew: false }, { driftMs: (ttlMs) => ttlMs / 100 + 2 })
    const gate = new Gate()
    engine.next.acquire.push(async (_request, pass) => {
      await gate.opened
      return pass()
    })
    const acquiring = locks.acquire('a')
    await clock.advance(300)
    gate.open()
    const lease = await acquiring
    expect(lease.remaining()).toBe(10_000 - 102 - 300)
    clock.pass(9000)
    expect(lease.remaining()).toBe(598)
    expect(lease.held).toBe(true)
    clock.pass(598)
    // No timer has fired, no promise has settled: `held` looks at the clock itself.
    expect(lease.remaining()).toBe(0)
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    expect(() => lease.assertHeld()).toThrow('its time is up')
  })

  test('ends early when the wall clock jumps ahead, as after a sleep of the machine', async () => {
    const { clock, locks } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a')
    clock.jumpWall(9999)
    expect(lease.held).toBe(true)
    clock.jumpWall(1)
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
  })

  test('is never prolonged by a wall clock that is set back', async () => {
    const { clock, locks } = bench({ ttl: '10s', renew: false })
    const lease = await locks.acquire('a')
    clock.jumpWall(-3_600_000)
    expect(lease.remaining()).toBe(10_000)
    clock.passMonotonic(10_000)
    expect(lease.held).toBe(false)
  })

  test('whatever the clocks do, has no validity left once either of them has moved on by the ttl', () => {
    const moves = fc.array(fc.record({ monotonicMs: fc.nat(3000), wallMs: fc.integer({ min: -20_000, max: 3000 }) }), {
      maxLength: 20,
    })
    fc.assert(
      fc.property(moves, (moves) => {
        const clock = new ManualClock()
        const record = new LeaseRecord({ resources: ['a'], owner: 'o', token: 1n, ttlMs: 10_000 }, instant(clock), {
          clock,
          limits: { maxTtlMs: 60_000, driftMs: () => 102 },
          renew: true,
          maxHoldMs: Infinity,
          onDoubt: 'keep',
          chain: { count: 0, sinceMs: 0 },
        })
        const [monotonic, wall] = [clock.monotonicMs(), clock.wallMs()]
        for (const move of moves) {
          clock.passMonotonic(move.monotonicMs)
          clock.jumpWall(move.wallMs)
          const passedMs = Math.max(clock.monotonicMs() - monotonic, clock.wallMs() - wall)
          expect(record.remainingMs()).toBe(Math.max(0, 10_000 - 102 - passedMs))
        }
      }),
    )
  })

  test('makes its signal late without missing what has happened before', async () => {
    const { locks } = bench()
    const lease = await locks.acquire('a')
    await lease.release()
    expect(lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toMatchObject({ name: 'LeaseLostError', reason: 'released', resources: ['a'] })
    expect(lease.signal).toBe(lease.signal)
  })
})

describe('release', () => {
  test('is true when it was still ours, aborts the signal at once, and frees the resource', async () => {
    const { engine, locks, leases } = bench()
    const lease = await locks.acquire('a')
    const { signal } = lease
    const gate = new Gate()
    engine.next.release.push(async (_lease, pass) => {
      await gate.opened
      return pass()
    })
    const releasing = lease.release()
    // Before the engine has answered: from here on, nobody may rely on it.
    expect(signal.aborted).toBe(true)
    expect(lease.held).toBe(false)
    gate.open()
    expect(await releasing).toBe(true)
    expect(lease.released).toBe(true)
    expect(await leases()).toEqual([])
  })

  test('gives the same answer again without asking the engine again, also while it is under way', async () => {
    const { engine, locks } = bench()
    const lease = await locks.acquire('a')
    const answers = await Promise.all([lease.release(), lease.release()])
    expect(answers).toEqual([true, true])
    expect(await lease.release()).toBe(true)
    expect(engine.count('release')).toBe(1)
  })

  test('is false when the lease was someone else’s meanwhile, and does that one no harm', async () => {
    const { clock, engine, locks, leases } = bench({ ttl: '1s', renew: false })
    const lease = await locks.acquire('a')
    await clock.advance(1000)
    await engine.inner.acquire({ resources: ['a'], owner: 'rival', ttlMs: 60_000 })
    expect(await lease.release()).toBe(false)
    expect(await leases()).toMatchObject([{ resource: 'a', owner: 'rival' }])
  })

  test('that fails rejects, is told, and leaves the lease over', async () => {
    const { engine, locks, events } = bench()
    const lease = await locks.acquire('a')
    const error = new Error('connection reset')
    engine.next.release.push(fails(error))
    await expect(lease.release()).rejects.toBe(error)
    expect(lease.held).toBe(false)
    expect(events.at(-1)).toMatchObject({ type: 'released', ours: 'unknown', cause: error })
  })

  test('at the end of an `await using` block never replaces what the block did', async () => {
    const { engine, locks, events } = bench()
    engine.next.release.push(fails(new Error('connection reset')), fails(new Error('connection reset')))
    const fine = async (): Promise<string> => {
      await using lease = await locks.acquire('a')
      return `done by ${lease.token}`
    }
    await expect(fine()).resolves.toBe('done by 1')
    const error = new Error('of the block')
    const bad = async (): Promise<void> => {
      await using lease = await locks.acquire('b')
      lease.assertHeld()
      throw error
    }
    await expect(bad()).rejects.toBe(error)
    expect(events.filter(({ type }) => type === 'released')).toHaveLength(2)
  })
})

describe('extend', () => {
  test('renews for the given time from now on', async () => {
    const { clock, locks } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a')
    await clock.advance(1000)
    await lease.extend()
    expect(lease.remaining()).toBe(10_000)
    await lease.extend('1m')
    expect(lease.remaining()).toBe(60_000)
    await lease.extend('2s')
    expect(lease.remaining()).toBe(2000)
  })

  test('counts from before it was sent, not from its answer', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s', renew: false })
    const lease = await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async (_leases, pass) => {
      const answer = await pass()
      await gate.opened
      return answer
    })
    const extending = lease.extend()
    await clock.advance(400)
    gate.open()
    await extending
    expect(lease.remaining()).toBe(9600)
  })

  test('of a lease that is gone is its end, with the reason', async () => {
    const { engine, locks, events } = bench()
    const lease = await locks.acquire('a')
    const { signal } = lease
    engine.next.extend.push(lost)
    await expect(lease.extend()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
    expect(signal.reason).toMatchObject({ reason: 'stolen' })
    expect(lease.held).toBe(false)
    expect(events.at(-1)).toMatchObject({ type: 'lost', reason: 'stolen' })
  })

  test('of a lease that is over is rejected without asking the engine', async () => {
    const { clock, engine, locks } = bench({ ttl: '1s', renew: false })
    const lease = await locks.acquire('a')
    clock.pass(1000)
    await expect(lease.extend()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' })
    const other = await locks.acquire('b')
    await other.release()
    await expect(other.extend()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'released' })
    expect(engine.count('extend')).toBe(0)
  })

  test('with an unknown outcome rejects, but the lease is still ours for what was left of it', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s', renew: false })
    const lease = await locks.acquire('a')
    await clock.advance(4000)
    engine.next.extend.push(unknown('no answer'))
    await expect(lease.extend('1m')).rejects.toMatchObject({
      code: 'ENGINE',
      message: 'could not extend: no answer',
      cause: new Error('no answer'),
    })
    expect(lease.remaining()).toBe(6000)
    expect(lease.held).toBe(true)
  })

  test('that shortens and has an unknown outcome leaves us with the shorter validity', async () => {
    const { engine, locks } = bench({ ttl: '1m', renew: false })
    const lease = await locks.acquire('a')
    engine.next.extend.push(async (leases, pass) => {
      await pass()
      return unknown('the answer got lost')(leases)
    })
    await expect(lease.extend('5s')).rejects.toMatchObject({ code: 'ENGINE' })
    expect(lease.remaining()).toBe(5000)
  })

  test.each([50, 100, 1000])('to %d ms from a much longer ttl leaves the lease for that time, renewed', async (ttl) => {
    const { clock, locks, told } = bench({ ttl: '1m' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    await lease.extend(ttl)
    await clock.advance(20 * ttl)
    expect([signal.aborted, lease.held]).toEqual([false, true])
    expect(told()).not.toContain('lost')
  })

  test('to much less than the ttl lasts for that time also while its answer is on its way', async () => {
    const { clock, engine, locks } = bench({ ttl: '1m', renew: false })
    const lease = await locks.acquire('a')
    const { signal } = lease
    engine.next.extend.push(() => new Promise(() => undefined))
    void lease.extend('100ms')
    await clock.advance(97)
    expect([signal.aborted, lease.held]).toEqual([false, true])
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ reason: 'expired' })
  })

  test('that shortens counts the shorter validity from the moment it is sent, and the signal comes in time', async () => {
    const { clock, engine, locks } = bench({ ttl: '1m', renew: false })
    const lease = await locks.acquire('a')
    const { signal } = lease
    const gate = new Gate()
    engine.next.extend.push(async (_leases, pass) => {
      const answer = await pass()
      await gate.opened
      return answer
    })
    const extending = watched(lease.extend('1s'))
    expect(lease.remaining()).toBeLessThanOrEqual(1000)
    await clock.advance(999)
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ code: 'LEASE_LOST' })
    gate.open()
    await clock.advance(0)
    expect(extending).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST' } })
  })

  test('that shortens and has an unknown outcome is followed by another renewal within the shorter validity', async () => {
    const { clock, engine, locks } = bench({ ttl: '1m' })
    const lease = await locks.acquire('a')
    engine.next.extend.push(unknown('no answer'))
    await expect(lease.extend('500ms')).rejects.toMatchObject({ code: 'ENGINE' })
    await clock.advance(480)
    expect(engine.count('extend')).toBeGreaterThan(1)
    expect(lease.held).toBe(true)
    // Not for longer: it may still take effect.
    expect(lease.remaining()).toBeLessThanOrEqual(500)
  })

  test('twice at once is sent one after the other: the last one asked for is the one that counts', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s', renew: false })
    const lease = await locks.acquire('a')
    const gates = [new Gate(), new Gate()]
    for (const gate of gates) {
      engine.next.extend.push(async (_leases, pass) => {
        await gate.opened
        return pass()
      })
    }
    const both = Promise.all([lease.extend('1m'), lease.extend('20s')])
    await clock.advance(0)
    expect(engine.count('extend')).toBe(1)
    gates[0]!.open()
    await clock.advance(0)
    expect(engine.count('extend')).toBe(2)
    gates[1]!.open()
    await both
    expect(lease.remaining()).toBe(20_000)
  })

  test('whose answer comes after the validity does not bring the lease back', async () => {
    const { clock, engine, locks } = bench({ ttl: '1s', renew: false })
    const lease = await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async (leases) => {
      await gate.opened
      return leases.map(() => ({ kind: 'held' as const }))
    })
    const extending = watched(lease.extend())
    clock.pass(1000)
    expect(lease.held).toBe(false)
    gate.open()
    await clock.advance(0)
    expect(extending).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST' } })
    expect(lease.held).toBe(false)
    expect(lease.signal.aborted).toBe(true)
  })
})

test('a lease is JSON, with its token as text, while it is held and after', async () => {
  const { clock, locks } = bench({ ttl: '10s' })
  const lease = await locks.acquire(['b', 'a'])
  await clock.advance(1000)
  const json = JSON.parse(JSON.stringify({ lease })) as { lease: object }
  expect(json.lease).toEqual({
    resources: ['a', 'b'],
    owner: lease.owner,
    token: String(lease.token),
    engine: lease.engine,
    shared: false,
    held: true,
    remainingMs: 9000,
    ttlMs: 10_000,
  })
  expect(String(lease)).toBe(`lease on 'a', 'b' with token ${lease.token}`)
  await lease.release()
  expect(JSON.parse(JSON.stringify(lease))).toMatchObject({ held: false, over: 'released', remainingMs: 0 })
})
