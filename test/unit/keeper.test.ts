import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { LeaseLostError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import { settled } from '../../harness/manual-clock.ts'
import { fails, Gate, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, type Bench } from './bench.ts'

/** Every renewal from now on is in doubt. */
function cutOff({ engine }: Bench): void {
  engine.next.extend.push(...Array.from({ length: 1000 }, () => unknown('no answer')))
}

describe('a pause in the middle of our own code', () => {
  // Wherever it begins, between two looks at the clock: a delay that was computed before must not count from after it.
  test.each(Array.from({ length: 12 }, (_, index) => index + 1))(
    'at look %d at the clock does not let the signal be late',
    async (look) => {
      const { clock, locks } = bench({ renew: false }, { driftMs: () => 0 })
      // Two: a pause while the one is looked at makes old what is known of the other.
      const endMs = new Map<AbortSignal, number>()
      const toldMs = new Map<AbortSignal, number>()
      for (const ttl of [1700, 2500]) {
        const { signal } = await locks.acquire(`ttl ${ttl}`, { ttl })
        endMs.set(signal, clock.monotonicMs() + ttl)
        signal.addEventListener('abort', () => toldMs.set(signal, monotonicMs()))
      }
      const monotonicMs = clock.monotonicMs.bind(clock)
      let looks = 0
      let pausedUntilMs = 0
      clock.monotonicMs = () => {
        if (++looks === look) {
          clock.pass(400)
          pausedUntilMs = monotonicMs()
        }
        return monotonicMs()
      }
      // Without a look of our own, which would be the one to be paused.
      while (toldMs.size < 2) await clock.advance(1)
      expect(looks).toBeGreaterThanOrEqual(look)
      for (const [signal, atMs] of toldMs) expect(atMs).toBeLessThanOrEqual(Math.max(endMs.get(signal)!, pausedUntilMs))
    },
  )
})

describe('renewal', () => {
  test('comes at a third of the ttl, again and again', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    await clock.advance(9999)
    expect(engine.count('extend')).toBe(0)
    await clock.advance(1)
    expect(engine.count('extend')).toBe(1)
    expect(lease.remaining()).toBe(30_000)
    await clock.advance(600_000)
    expect(engine.count('extend')).toBe(61)
    expect(lease.held).toBe(true)
    expect(lease.signal.aborted).toBe(false)
  })

  test('keeps a lease alive on the engine far beyond its first ttl', async () => {
    const { clock, locks, leases } = bench({ ttl: '1s' })
    const lease = await locks.acquire('a')
    await clock.advance(3_600_000)
    expect(await leases()).toMatchObject([{ resource: 'a', owner: lease.owner, token: lease.token }])
  })

  test('stops with the release', async () => {
    const { clock, engine, locks } = bench({ ttl: '3s' })
    const lease = await locks.acquire('a')
    await lease.release()
    await clock.advance(60_000)
    expect(engine.count('extend')).toBe(0)
  })

  test('does not happen with renew: false, and the signal comes before the end', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a', { renew: false })
    const { signal } = lease
    await clock.advance(9799)
    expect(signal.aborted).toBe(false)
    await clock.advance(1)
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ reason: 'expired' })
    expect(engine.count('extend')).toBe(0)
  })

  test('of many leases goes in few calls, and of all that are due at about the same time in one', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    for (let i = 0; i < 450; i++) {
      await locks.acquire(`r${i}`)
      clock.pass(1)
    }
    expect(clock.timers).toBeLessThanOrEqual(2)
    await clock.advance(10_000 - 450)
    const sizes = engine.calls.map((call) => (call.op === 'extend' ? call.leases.length : 0)).filter((size) => size > 0)
    expect(sizes).toEqual([200, 200, 50])
  })

  test('of leases with different ttls follows the shortest', async () => {
    const { clock, engine, locks } = bench()
    await locks.acquire('long', { ttl: '1h' })
    const short = await locks.acquire('short', { ttl: '3s' })
    await clock.advance(60_000)
    expect(short.held).toBe(true)
    const renewed = engine.calls.flatMap((call) => (call.op === 'extend' ? call.leases : []))
    expect(renewed.filter(({ resources }) => resources[0] === 'short')).toHaveLength(60)
    expect(renewed.filter(({ resources }) => resources[0] === 'long')).toHaveLength(0)
  })

  test('comes at once when the engine has its doubts, and a loss is heard of then', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    const fixed = await locks.acquire('b', { renew: false })
    const { signal } = lease
    engine.next.extend.push(lost)
    engine.doubt()
    await clock.advance(1)
    expect(engine.count('extend')).toBe(1)
    expect(signal.reason).toMatchObject({ reason: 'stolen' })
    // What is never renewed can't be proved without making it longer.
    expect(fixed.held).toBe(true)
  })

  test('a doubt while nothing is held, or while an answer is out, sends nothing', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    engine.doubt()
    await clock.advance(1000)
    expect(engine.count('extend')).toBe(0)
    const gate = new Gate()
    engine.next.extend.push((_leases, pass) => gate.opened.then(pass))
    const lease = await locks.acquire('a')
    await clock.advance(10_000)
    engine.doubt()
    await clock.advance(1000)
    expect(engine.count('extend')).toBe(1)
    gate.open()
    await settled()
    expect(lease.held).toBe(true)
  })

  test('is not sent again while an answer is out', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async (_leases, pass) => {
      await gate.opened
      return pass()
    })
    await clock.advance(29_000)
    expect(engine.count('extend')).toBe(1)
    gate.open()
    await clock.advance(1)
    expect(engine.count('extend')).toBeGreaterThan(1)
  })
})

describe('unknown is not lost', () => {
  test('a renewal in doubt is told, tried again, and forgotten when one is proved', async () => {
    const { clock, engine, locks, told, events } = bench({ ttl: '6s' })
    const lease = await locks.acquire('a')
    engine.next.extend.push(unknown('first'), unknown('second'))
    await clock.advance(2000)
    expect(told().at(-1)).toBe('doubtful')
    expect(events.at(-1)).toMatchObject({ cause: new Error('first'), remainingMs: 4000 })
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(1000)
    expect(events.at(-1)).toMatchObject({ type: 'doubtful', cause: new Error('second'), remainingMs: 3000 })
    await clock.advance(1000)
    expect(events.at(-1)).toMatchObject({ type: 'renewed', slackMs: 2000 })
    expect(lease.remaining()).toBe(6000)
  })

  test.each([
    ['a renewal', '6s', ({ clock }: Bench) => clock.advance(2000)],
    ['a shorter extension', '1m', (_: Bench, lease: Lease) => lease.extend('6s').catch(() => undefined)],
  ] as const)(
    '%s in doubt may take effect after a longer extension: it is not believed for longer',
    async (_, ttl, doubt) => {
      const it = bench({ ttl })
      const { clock, engine, locks, told } = it
      const lease = await locks.acquire('a')
      engine.next.extend.push(unknown('late'))
      await doubt(it, lease)
      expect(told().at(-1)).toBe('doubtful')
      await lease.extend('10m')
      expect(lease.remaining()).toBe(6000)
      await clock.advance(2000)
      expect(lease.remaining()).toBe(6000)
      expect(engine.calls.at(-1)).toMatchObject({ leases: [{ ttlMs: 600_000 }] })
    },
  )

  test('a rejection of the engine is a doubt like any other', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '6s' })
    const lease = await locks.acquire('a')
    engine.next.extend.push(fails(new Error('boom')))
    await clock.advance(2000)
    expect(events.at(-1)).toMatchObject({ type: 'doubtful', cause: new Error('boom') })
    await clock.advance(1000)
    expect(lease.remaining()).toBe(6000)
  })

  test('an engine that leaves out an answer leaves that lease in doubt, and only that one', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '6s' })
    await locks.acquire('a')
    await locks.acquire('b')
    engine.next.extend.push(() => [{ kind: 'held' }])
    await clock.advance(2000)
    expect(events.slice(-2)).toMatchObject([
      { type: 'renewed', resources: ['a'] },
      { type: 'doubtful', resources: ['b'] },
    ])
  })

  test('a lease that stays in doubt is given up before its validity ends, as unreachable, with the last cause', async () => {
    const it = bench({ ttl: '10s' })
    const lease = await it.locks.acquire('a')
    const { signal } = lease
    cutOff(it)
    await it.clock.advance(9799)
    expect(signal.aborted).toBe(false)
    await it.clock.advance(1)
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ reason: 'unreachable', cause: new Error('no answer') })
    expect(lease.held).toBe(false)
    expect(it.events.at(-1)).toMatchObject({ type: 'lost', reason: 'unreachable' })
    // Several tries within the slack, not a storm of them, and none after the end.
    const tries = it.engine.count('extend')
    expect(tries).toBeGreaterThanOrEqual(6)
    expect(tries).toBeLessThanOrEqual(20)
    await it.clock.advance(60_000)
    expect(it.engine.count('extend')).toBe(tries)
  })

  test('the signal comes in time even if a renewal is never answered', async () => {
    const { clock, engine, locks } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    engine.next.extend.push(() => new Promise<never>(() => undefined))
    await clock.advance(9800)
    expect(signal.aborted).toBe(true)
    expect(lease.held).toBe(false)
  })

  test('a renewal that was answered after the signal does not bring the lease back', async () => {
    const { clock, engine, locks, told } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async (leases) => {
      await gate.opened
      return leases.map(() => ({ kind: 'held' as const }))
    })
    await clock.advance(9800)
    gate.open()
    await clock.advance(0)
    expect(lease.held).toBe(false)
    expect(told()).not.toContain('renewed')
  })
})

describe('lost', () => {
  test('is lost at once, with the reason stolen, and is not renewed again', async () => {
    const { clock, engine, locks, told, events } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    engine.next.extend.push(lost)
    await clock.advance(10_000)
    expect(signal.reason).toMatchObject({ name: 'LeaseLostError', reason: 'stolen', resources: ['a'] })
    expect(lease.remaining()).toBe(0)
    expect(() => lease.assertHeld()).toThrow('the engine says that it is no longer ours')
    expect(events.at(-1)).toMatchObject({ type: 'lost', reason: 'stolen' })
    await clock.advance(60_000)
    expect(engine.count('extend')).toBe(1)
    expect(told().filter((type) => type === 'lost')).toHaveLength(1)
  })

  test('one lease of a batch does not take the others with it', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const [a, b] = [await locks.acquire('a'), await locks.acquire('b')]
    engine.next.extend.push(() => [{ kind: 'lost' }, { kind: 'held' }])
    await clock.advance(10_000)
    expect([a.held, b.held]).toEqual([false, true])
  })
})

describe('a lease that is over', () => {
  test.each([
    ['held', () => [{ kind: 'held' }] as const],
    ['lost', () => [{ kind: 'lost' }] as const],
    ['unknown', () => unknown('no answer')([{ resources: [], owner: '', token: 0n, ttlMs: 0 }])],
  ])('hears nothing of a renewal that is answered %s after its release', async (_kind, answer) => {
    const { clock, engine, locks, told } = bench({ ttl: '3s' })
    const lease = await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async () => {
      await gate.opened
      return answer()
    })
    await clock.advance(1000)
    await lease.release()
    gate.open()
    await clock.advance(10_000)
    expect(told()).toEqual(['asked', 'attempt', 'granted', 'released'])
    expect(engine.count('extend')).toBe(1)
    expect(lease.signal.reason).toMatchObject({ reason: 'released' })
  })

  test('by a loss stays lost, for the same reason, when it is released and its locks are closed', async () => {
    const { clock, engine, locks, told } = bench({ ttl: '3s' })
    const lease = await locks.acquire('a')
    engine.next.extend.push(lost)
    await clock.advance(1000)
    await lease.release()
    await locks.close()
    expect(lease.released).toBe(false)
    expect(() => lease.assertHeld()).toThrow('the engine says that it is no longer ours')
    expect(told().filter((type) => type === 'lost')).toHaveLength(1)
  })
})

describe('the deadline', () => {
  test('leaves the work a moment: 2 % of the ttl, at least 2 ms and at most 250 ms', async () => {
    for (const [ttl, margin] of [
      [50, 2],
      [100, 2],
      [1000, 20],
      [10_000, 200],
      [60_000, 250],
    ] as const) {
      const { clock, locks } = bench({ renew: false })
      const { signal } = await locks.acquire('a', { ttl })
      await clock.advance(ttl - margin - 1)
      expect([ttl, signal.aborted]).toEqual([ttl, false])
      await clock.advance(1)
      expect([ttl, signal.aborted]).toEqual([ttl, true])
    }
  })

  test('is set again at every renewal', async () => {
    const { clock, engine, locks } = bench({ ttl: '9s' })
    const { signal } = await locks.acquire('a')
    await clock.advance(3000)
    engine.next.extend.push(...Array.from({ length: 100 }, () => unknown('no answer')))
    await clock.advance(8819)
    expect(signal.aborted).toBe(false)
    await clock.advance(1)
    expect(signal.aborted).toBe(true)
  })

  test('of maxHold comes even if the lease could still be renewed, and says so', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '3s', maxHold: '10s' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    await clock.advance(9939)
    expect(engine.count('extend')).toBeGreaterThan(3)
    expect(lease.remaining()).toBe(61)
    expect(signal.aborted).toBe(false)
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ reason: 'max-hold' })
    expect(events.at(-1)).toMatchObject({ type: 'lost', reason: 'max-hold' })
    expect(lease.held).toBe(false)
  })

  test('of maxHold is its reason also in doubt, and where only a look at the clock finds it', async () => {
    const it = bench({ ttl: '3s', maxHold: '10s' })
    const { signal } = await it.locks.acquire('a')
    await it.clock.advance(8900)
    cutOff(it)
    await it.clock.advance(1040)
    expect(it.told()).toContain('doubtful')
    expect(signal.reason).toMatchObject({ reason: 'max-hold' })
    const looked = await it.locks.acquire('b', { maxHold: '1s' })
    it.clock.pass(1000)
    expect(() => looked.assertHeld()).toThrow(expect.objectContaining({ reason: 'max-hold' }))
    await expect(looked.extend()).rejects.toMatchObject({ reason: 'max-hold' })
  })

  test('that only a look at the clock finds is unreachable after a doubt', async () => {
    const it = bench({ ttl: '3s' })
    const lease = await it.locks.acquire('a')
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(1000)
    it.clock.pass(3000)
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({ reason: 'unreachable', cause: new Error('no answer') }),
    )
  })

  test('of maxHold is not moved by extend', async () => {
    const { clock, locks } = bench({ ttl: '3s', maxHold: '10s' })
    const lease = await locks.acquire('a')
    await clock.advance(5000)
    await lease.extend('1h')
    expect(lease.remaining()).toBe(5000)
  })

  test('comes before the end whatever the answers and their delays are', async () => {
    const answer = fc.record({ kind: fc.constantFrom('held', 'unknown', 'slow', 'never'), delayMs: fc.nat(3000) })
    await fc.assert(
      fc.asyncProperty(
        fc.array(answer, { maxLength: 12 }),
        fc.integer({ min: 50, max: 3000 }),
        async (answers, ttl) => {
          const { clock, engine, locks } = bench({ ttl })
          const lease = await locks.acquire('a')
          const { signal } = lease
          for (const { kind, delayMs } of answers) {
            engine.next.extend.push(async (leases, pass) => {
              if (kind === 'unknown') return unknown('no answer')(leases)
              const result = await pass()
              if (kind === 'slow') await new Promise<void>((resolve) => void clock.timer(resolve, delayMs))
              return kind === 'never' ? new Promise<never>(() => undefined) : result
            })
          }
          // Looked at often: at no moment may the validity be over and the signal not be there.
          for (let step = 0; step < 60; step++) {
            await clock.advance(ttl / 9)
            expect(signal.aborted).toBe(!lease.held)
          }
        },
      ),
      { numRuns: 30 },
    )
  })
})

describe('after a stall', () => {
  test('the deadline is checked first: no renewal is sent for a lease that is over, and the stall is told', async () => {
    const { clock, engine, locks, events, told } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    await clock.stall(20_000)
    expect(signal.aborted).toBe(true)
    expect((signal.reason as LeaseLostError).reason).toBe('expired')
    expect(engine.count('extend')).toBe(0)
    expect(told().slice(3)).toEqual(['lost', 'stalled'])
    expect(events.at(-1)).toEqual({ type: 'stalled', lateMs: 19_000, leases: 1 })
  })

  test('that the lease has outlived, it is renewed at once', async () => {
    const { clock, engine, locks, told } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    await clock.stall(25_000)
    expect(told().slice(3)).toEqual(['stalled', 'renewed'])
    expect(engine.count('extend')).toBe(1)
    expect(lease.remaining()).toBe(30_000)
  })

  test('only the leases that are over are lost, the others are renewed', async () => {
    const { clock, locks } = bench()
    const short = await locks.acquire('short', { ttl: '3s' })
    const long = await locks.acquire('long', { ttl: '1m' })
    await clock.stall(30_000)
    expect([short.held, long.held]).toEqual([false, true])
    expect(long.remaining()).toBe(60_000)
  })

  test('a timer that is a little late, as on every busy machine, is not a stall', async () => {
    const { clock, locks, told } = bench({ ttl: '30s' })
    await locks.acquire('a')
    await clock.stall(1100)
    expect(told()).not.toContain('stalled')
    await clock.stall(1101)
    expect(told()).toContain('stalled')
  })

  test('of the machine, which the monotonic clock did not see, the lease is over as soon as anyone looks', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    const { signal } = lease
    clock.jumpWall(60_000)
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow('over')
    await clock.advance(10_000)
    expect(signal.aborted).toBe(true)
    expect(engine.count('extend')).toBe(0)
  })
})

describe('a wall clock that is set back', () => {
  test('neither prolongs a lease nor keeps it from being renewed', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a')
    clock.jumpWall(-86_400_000)
    await clock.advance(10_000)
    expect(engine.count('extend')).toBe(1)
    engine.next.extend.push(...Array.from({ length: 100 }, () => unknown('no answer')))
    await clock.advance(30_000)
    expect(lease.held).toBe(false)
    expect(lease.signal.aborted).toBe(true)
  })
})

test('an abort listener that throws or releases does not disturb the other leases', async () => {
  const { clock, engine, locks } = bench({ ttl: '3s' })
  const [a, b] = [await locks.acquire('a'), await locks.acquire('b')]
  const released: Promise<boolean>[] = []
  a.signal.addEventListener('abort', () => released.push(a.release()))
  engine.next.extend.push(() => [{ kind: 'lost' }, { kind: 'held' }])
  await clock.advance(1000)
  await settled()
  expect(await Promise.all(released)).toEqual([true])
  expect(b.remaining()).toBe(3000)
})
