import { describe, expect, test } from 'vitest'
import type { LeaseRef } from '../../src/engine.ts'
import type { LockEvent } from '../../src/events.ts'
import type { Lease } from '../../src/lease.ts'
import type { Run, RunLog } from '../../src/runs.ts'
import { fails, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, neighbour, watched, type Bench } from './bench.ts'

const forever = (): Promise<never> => new Promise(() => undefined)

describe('once', () => {
  test('runs the job, gives its value, and lets go', async () => {
    const it = bench()
    expect(await it.locks.once('job', {}, () => 42)).toEqual({ ran: true, value: 42 })
    expect(await it.leases()).toEqual([])
  })

  test('skips the job when it runs somewhere else, without waiting', async () => {
    const it = bench()
    await neighbour(it).acquire('job')
    let ran = 0
    expect(await it.locks.once('job', {}, () => ran++)).toEqual({ ran: false })
    expect(ran).toBe(0)
  })

  test('keeps the job from running again for at least so long since it began, and not longer', async () => {
    const it = bench({ ttl: '30s' })
    const other = neighbour(it)
    const job = watched(
      it.locks.once(
        'job',
        { atLeast: '10s' },
        () => new Promise<void>((resolve) => void it.clock.timer(resolve, 4000)),
      ),
    )
    await it.clock.advance(4000)
    expect(job).toMatchObject({ state: 'resolved', value: { ran: true } })
    await it.clock.advance(5999)
    expect(await other.once('job', {}, () => 1)).toEqual({ ran: false })
    await it.clock.advance(1)
    expect(await other.once('job', {}, () => 1)).toEqual({ ran: true, value: 1 })
  })

  test('counts from the start of the job if this process stood still between the grant and that', async () => {
    const it: Bench = bench({ ttl: '30s', observe: ({ type }) => type === 'granted' && it.clock.pass(8000) })
    const other = neighbour(it)
    await it.locks.once('job', { atLeast: '20s' }, () => undefined)
    await it.clock.advance(19_999)
    expect(await other.once('job', {}, () => 1)).toEqual({ ran: false })
    await it.clock.advance(1)
    expect(await other.once('job', {}, () => 1)).toEqual({ ran: true, value: 1 })
  })

  test('keeps it for so long even if this machine dies in the middle: the first ttl covers it', async () => {
    const it = bench({ ttl: '1s' })
    void it.locks.once('job', { atLeast: '1h' }, () => new Promise<never>(() => undefined))
    await it.clock.advance(0)
    expect(await it.leases()).toMatchObject([{ remainingMs: 3_600_000 }])
  })

  test('lets go at once when the job took longer than that', async () => {
    const it = bench()
    const job = watched(
      it.locks.once('job', { atLeast: '1s' }, () => new Promise<void>((resolve) => void it.clock.timer(resolve, 1500))),
    )
    await it.clock.advance(1500)
    expect(job.state).toBe('resolved')
    expect(await it.leases()).toEqual([])
  })

  test('keeps it for so long also when the job failed, and rejects with its error', async () => {
    const it = bench()
    const error = new Error('of the job')
    await expect(it.locks.once('job', { atLeast: '10s' }, () => Promise.reject(error))).rejects.toBe(error)
    expect(await it.leases()).toMatchObject([{ remainingMs: 10_000 }])
  })

  test('leaves nothing running while the rest of the time runs out, not even a renewal', async () => {
    const it = bench({ ttl: '30s' })
    await it.locks.once('job', { atLeast: '20s' }, () => undefined)
    const before = it.engine.count('extend')
    await it.clock.advance(20_000)
    expect(it.engine.count('extend')).toBe(before)
    expect(await it.leases()).toEqual([])
    expect(it.told()).not.toContain('lost')
  })

  test('that can not set the rest lets the lease run out with its ttl, no longer renewed', async () => {
    const it = bench({ ttl: '30s' })
    it.engine.next.extend.push(unknown('no answer'))
    expect(await it.locks.once('job', { atLeast: '20s' }, () => 42)).toEqual({ ran: true, value: 42 })
    expect(await it.leases()).toMatchObject([{ remainingMs: 30_000 }])
    expect(it.events.at(-1)).toMatchObject({ type: 'left', cause: { message: 'no answer' } })
    await it.clock.advance(30_000)
    expect(it.engine.count('extend')).toBe(1)
    expect(await it.leases()).toEqual([])
  })

  test('asks for a rest in whole milliseconds, rounded up', async () => {
    const it = bench({ ttl: '30s' })
    await it.locks.once('job', { atLeast: '10s' }, () => it.clock.pass(4000.4))
    expect(it.engine.calls.at(-1)).toMatchObject({ op: 'extend', leases: [{ ttlMs: 6000 }] })
  })

  test('does not let go early when a clock that is set ahead ends the lease here, but not on the server', async () => {
    const it = bench({ ttl: '30s' })
    const job = it.locks.once('job', { atLeast: '20s' }, () => it.clock.jumpWall(3_600_000))
    await expect(job).rejects.toMatchObject({ code: 'LEASE_LOST' })
    expect(it.engine.count('release')).toBe(0)
  })

  test.each([
    ['100ms', 15_000],
    ['16s', 16_000],
  ] as const)(
    'that extends its lease by %s keeps the rest of its time if this machine dies then',
    async (ttl, remainingMs) => {
      const it = bench({ ttl: '1s' })
      let lease: Lease | undefined
      void it.locks.once('job', { atLeast: '20s' }, (granted) => {
        lease = granted
        return forever()
      })
      await it.clock.advance(5000)
      await lease!.extend(ttl)
      expect(await it.leases()).toMatchObject([{ remainingMs }])
    },
  )

  test.each([
    ['an extension', {}],
    ['an engine of its own way to leave', { leave: async () => ({ kind: 'lost' }) }],
  ])('rejects when setting the rest by %s finds that the lease is lost', async (_how, more) => {
    const it = bench({ ttl: '30s' })
    Object.assign(it.engine, more)
    it.engine.next.extend.push(lost)
    let signal: AbortSignal | undefined
    const job = it.locks.once('job', { atLeast: '20s' }, (lease) => {
      signal = lease.signal
    })
    await expect(job).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'unnoticed' })
    expect(it.events.at(-1)).toMatchObject({ type: 'lost', reason: 'unnoticed' })
    expect(signal!.reason).toMatchObject({ reason: 'unnoticed' })
  })

  test('rejects when only its release finds that the lease was lost', async () => {
    const it = bench()
    it.engine.next.release.push(() => ({ ours: false, awaited: 0 }))
    await expect(it.locks.once('job', {}, () => 42)).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'unnoticed' })
  })

  test('leaves the rest when the locks are closed in the middle of the job, which hears of it', async () => {
    const it = bench({ ttl: '30s' })
    let signal: AbortSignal | undefined
    void it.locks.once('job', { atLeast: '20s' }, (lease) => {
      signal = lease.signal
      return forever()
    })
    await it.clock.advance(12_000)
    await it.locks.close()
    expect(signal).toMatchObject({ aborted: true, reason: { reason: 'closed' } })
    expect(await it.leases()).toMatchObject([{ remainingMs: 8000 }])
    expect(it.engine.count('release')).toBe(0)
    expect(it.told().at(-1)).toBe('left')
  })

  test('that is done while the locks are being closed, or the other way round, leaves the rest', async () => {
    const it = bench({ ttl: '30s' })
    const job = it.locks.once('job', { atLeast: '20s' }, () => 42)
    await it.clock.advance(0)
    await Promise.all([it.locks.close(), job.catch(() => undefined)])
    expect(await it.leases()).toMatchObject([{ remainingMs: 20_000 }])
    expect(it.engine.count('release')).toBe(0)
  })

  test('releases the lease when the locks are closed after that time', async () => {
    const it = bench({ ttl: '30s' })
    void it.locks.once('job', { atLeast: '20s' }, forever)
    await it.clock.advance(20_000)
    await it.locks.close()
    expect(await it.leases()).toEqual([])
  })

  test('tells of a lease that closing the locks found to be lost', async () => {
    const it = bench({ ttl: '30s' })
    void it.locks.once('job', { atLeast: '20s' }, forever)
    await it.clock.advance(0)
    it.engine.next.extend.push(lost)
    await it.locks.close()
    expect(it.events.at(-1)).toMatchObject({ type: 'released', ours: false })
  })

  test('leaves the rest when the job itself releases its lease, which is over for the job', async () => {
    const it = bench({ ttl: '30s' })
    const job = it.locks.once('job', { atLeast: '20s' }, async (lease) => {
      expect(await lease.release()).toBe(true)
      return lease.held
    })
    expect(await job).toEqual({ ran: true, value: false })
    expect(await it.leases()).toMatchObject([{ remainingMs: 20_000 }])
  })

  test('tells an engine that notices the end of its processes to keep the lease without them', async () => {
    const it = bench({ ttl: '30s' })
    const left: unknown[] = []
    Object.assign(it.engine, {
      leave: async (lease: LeaseRef) => {
        left.push(lease)
        return { kind: 'held' }
      },
    })
    await it.locks.once('job', { atLeast: '10s' }, () => it.clock.advance(4000))
    expect(left).toMatchObject([{ resources: ['job'], ttlMs: 6000, token: 1n }])
    expect(it.engine.ops).not.toContain('extend')
  })

  test('wakes those who wait in this process when the rest is over, not with the longer ttl', async () => {
    const it = bench({ ttl: '30s', wait: '1h' })
    const job = it.locks.once(
      'job',
      { atLeast: '5s' },
      () => new Promise<void>((resolve) => void it.clock.timer(resolve, 1000)),
    )
    await it.clock.advance(0)
    const waiting = watched(it.locks.acquire('job'))
    await it.clock.advance(1000)
    await job
    await it.clock.advance(3999)
    expect(waiting.state).toBe('pending')
    await it.clock.advance(30)
    expect(waiting.state).toBe('resolved')
  })

  test('tells the job when its time is up, and rejects if it went on', async () => {
    const it = bench({ ttl: '3s' })
    const seen: unknown[] = []
    const job = watched(
      it.locks.once('job', { atMost: '10s' }, async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        seen.push(signal.reason)
      }),
    )
    await it.clock.advance(10_000)
    expect(seen).toMatchObject([{ reason: 'max-hold' }])
    expect(job).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST', reason: 'max-hold' } })
  })

  test('rejects when the lease was lost while the job ran', async () => {
    const it = bench({ ttl: '3s' })
    it.engine.next.extend.push(lost)
    const job = watched(
      it.locks.once('job', {}, () => new Promise<void>((resolve) => void it.clock.timer(resolve, 2000))),
    )
    await it.clock.advance(2000)
    expect(job).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST', reason: 'stolen' } })
  })

  test('gives the value although the release failed', async () => {
    const it = bench()
    it.engine.next.release.push(fails(new Error('connection reset')))
    expect(await it.locks.once('job', {}, () => 42)).toEqual({ ran: true, value: 42 })
  })

  test('never overlaps or comes too early, on however many machines and whatever the schedule', async () => {
    const it = bench({ ttl: '5s' })
    const machines = [it.locks, neighbour(it, { ttl: '5s' }), neighbour(it, { ttl: '5s' })]
    const began: number[] = []
    const work = (): Promise<void> => {
      began.push(it.clock.monotonicMs())
      return new Promise((resolve) => void it.clock.timer(resolve, 700))
    }
    for (let tick = 0; tick < 60; tick++) {
      for (const machine of machines) void machine.once('job', { atLeast: '10s' }, work)
      await it.clock.advance(1000)
    }
    expect(began.length).toBeGreaterThanOrEqual(5)
    for (const [index, at] of began.slice(1).entries()) expect(at - began[index]!).toBeGreaterThanOrEqual(10_000)
  })

  test.each([
    [{ atLeast: -1 }, RangeError, /^atLeast: expected /],
    [{ atLeast: 'soon' }, TypeError, /^atLeast: expected .*, got 'soon'/],
    [{ atMost: 0 }, RangeError, /^atMost: expected /],
    [
      { atLeast: '2s', atMost: '1s' },
      RangeError,
      /^atMost: expected at least as long as atLeast, .* 2000 ms, got '1s'/,
    ],
    [{ ttl: 10 }, RangeError, /^ttl: expected at least 50 ms, got 10/],
    [null, TypeError, /^options: expected an object, got null/],
  ])('with %j is rejected before anything is acquired', async (options, kind, message) => {
    const it = bench()
    const outcome = it.locks.once('job', options as never, () => 1)
    await expect(outcome).rejects.toThrow(kind)
    await expect(outcome).rejects.toThrow(message)
    await expect(it.locks.once('job', {}, 'work' as never)).rejects.toThrow(
      /^work: expected a function, .*, got 'work'/,
    )
    expect(it.engine.calls).toEqual([])
  })
})

function log(): RunLog & { readonly all: Run[] } {
  const all: Run[] = []
  return { all, recordRun: async (run) => void all.push(run) }
}

describe('runs of once', () => {
  test('a run is recorded when it begins, and when it is done, with its lease and how long it took', async () => {
    const it = bench()
    const runs = log()
    let lease: Lease | undefined
    const job = watched(
      it.locks.once('job', { runs }, (granted) => {
        lease = granted
        return new Promise<void>((resolve) => void it.clock.timer(resolve, 4000))
      }),
    )
    await it.clock.advance(3999)
    const { owner, token, engine } = lease!
    expect(runs.all).toEqual([{ job: 'job', owner, token, engine, outcome: 'began', tookMs: 0 }])
    await it.clock.advance(1)
    expect(job).toMatchObject({ state: 'resolved', value: { ran: true } })
    expect(runs.all[1]).toEqual({ job: 'job', owner, token, engine, outcome: 'done', tookMs: 4000 })
    expect(runs.all).toHaveLength(2)
  })

  test('a run that fails is recorded with its message, and one whose lease was lost as lost', async () => {
    const it = bench()
    const runs = log()
    const failing = it.locks.once('job', { runs }, () => Promise.reject(new Error('no paper')))
    await expect(failing).rejects.toThrow('no paper')
    expect(runs.all[1]).toMatchObject({ outcome: 'failed', message: 'no paper' })
    const losing = it.locks.once('job', { runs, atMost: '1s' }, async (lease) => {
      await it.clock.advance(2000)
      lease.signal.throwIfAborted()
    })
    await expect(losing).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'max-hold' })
    expect(runs.all[3]).toMatchObject({
      outcome: 'lost',
      message: "the lease on 'job' is over: it was held for as long as it may be",
    })
  })

  test('a job that is skipped leaves no run', async () => {
    const it = bench()
    await neighbour(it).acquire('job')
    const runs = log()
    expect(await it.locks.once('job', { runs }, () => 1)).toEqual({ ran: false })
    expect(runs.all).toEqual([])
  })

  test('a log that fails neither stops the job nor changes its outcome: each failure is an event', async () => {
    const events: LockEvent[] = []
    const it = bench({ observe: (event) => void events.push(event) })
    const cause = new Error('the store is away')
    const runs: RunLog = { recordRun: () => Promise.reject(cause) }
    expect(await it.locks.once('job', { runs }, () => 42)).toEqual({ ran: true, value: 42 })
    await expect(it.locks.once('job', { runs }, () => Promise.reject(new Error('mine')))).rejects.toThrow('mine')
    const unrecorded = events.filter(({ type }) => type === 'unrecorded')
    expect(unrecorded).toHaveLength(4)
    expect(unrecorded[0]).toMatchObject({ resources: ['job'], cause })
  })

  test('the end is not recorded before the beginning was', async () => {
    const it = bench()
    const order: string[] = []
    const runs: RunLog = {
      async recordRun({ outcome }) {
        if (outcome === 'began') await new Promise<void>((resolve) => void it.clock.timer(resolve, 1000))
        order.push(outcome)
      },
    }
    const job = watched(it.locks.once('job', { runs }, () => 1))
    await it.clock.advance(999)
    expect([order, job.state, await it.leases()]).toEqual([[], 'pending', []])
    await it.clock.advance(1)
    expect([order, job.state]).toEqual([['began', 'done'], 'resolved'])
  })

  test('what cannot record is refused by name', async () => {
    const it = bench()
    await expect(it.locks.once('job', { runs: {} as never }, () => 1)).rejects.toThrow(
      'runs: expected a guard such as postgresGuard(pool), or an object with recordRun, got an object',
    )
    await expect(it.locks.once('job', { runs: null as never }, () => 1)).rejects.toThrow('got null')
  })
})
