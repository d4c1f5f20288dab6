import { describe, expect, test, vi } from 'vitest'
import { EngineError, LeaseLostError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import { fails, Gate, lost } from '../../harness/scripted-engine.ts'
import { bench, collect, neighbour, watched } from './bench.ts'

describe('tryAcquire', () => {
  test('gives the lease when the resource is free', async () => {
    const { locks, leases } = bench()
    const lease = await locks.tryAcquire('a')
    expect(lease!.held).toBe(true)
    expect(await leases()).toMatchObject([{ resource: 'a', owner: lease!.owner, token: lease!.token }])
  })

  test('gives null when someone else has it, at once and without a trace', async () => {
    const it = bench()
    await neighbour(it).acquire('a')
    expect(await it.locks.tryAcquire('a')).toBeNull()
    expect(it.told()).toEqual(['asked', 'attempt', 'refused', 'denied'])
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('gives null when these very locks have it: a lease is not reentrant', async () => {
    const { locks } = bench()
    await locks.acquire('a')
    expect(await locks.tryAcquire('a')).toBeNull()
  })

  test('takes all of several resources or none', async () => {
    const it = bench()
    await neighbour(it).acquire('b')
    expect(await it.locks.tryAcquire(['a', 'b', 'c'])).toBeNull()
    expect((await it.leases()).map(({ resource }) => resource)).toEqual(['b'])
  })

  test('rejects when the engine could not be asked: that is not the same as held', async () => {
    const { engine, locks } = bench()
    const error = new EngineError('no answer', ['a'])
    engine.next.acquire.push(fails(error))
    await expect(locks.tryAcquire('a')).rejects.toBe(error)
    expect(engine.count('acquire')).toBe(1)
  })
})

describe('using', () => {
  test('runs the work under a lease, gives its result, and releases', async () => {
    const { locks, leases } = bench()
    const seen: Lease[] = []
    const result = await locks.using('a', async (lease) => {
      seen.push(lease)
      expect(lease.held).toBe(true)
      expect(await leases()).toHaveLength(1)
      return 42
    })
    expect(result).toBe(42)
    expect(seen[0]!.held).toBe(false)
    expect(await leases()).toEqual([])
  })

  test('takes options between the resource and the work', async () => {
    const { locks } = bench()
    expect(await locks.using('a', { ttl: '5s' }, (lease) => lease.remaining())).toBe(5000)
  })

  test('rejects with the work’s own error, and releases', async () => {
    const { locks, leases } = bench()
    const error = new Error('of the work')
    await expect(
      locks.using('a', () => {
        throw error
      }),
    ).rejects.toBe(error)
    expect(await leases()).toEqual([])
  })

  test('rejects with the work’s own error even if the lease was lost and the release fails too', async () => {
    const { clock, engine, locks } = bench({ ttl: '3s' })
    const error = new Error('of the work')
    engine.next.extend.push(lost)
    engine.next.release.push(fails(new Error('connection reset')))
    const work = watched(
      locks.using('a', async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        throw error
      }),
    )
    await clock.advance(1000)
    expect(work).toMatchObject({ state: 'rejected', reason: error })
  })

  test('rejects with LeaseLostError when the lease was lost while the work ran to its end', async () => {
    const { clock, engine, locks } = bench({ ttl: '3s' })
    engine.next.extend.push(lost)
    const gate = new Gate()
    const work = watched(locks.using('a', () => gate.opened))
    await clock.advance(1000)
    expect(work.state).toBe('pending')
    gate.open()
    await clock.advance(0)
    expect(work.reason).toBeInstanceOf(LeaseLostError)
    expect(work.reason).toMatchObject({ reason: 'stolen' })
  })

  test('rejects with LeaseLostError when work that blocked the event loop outlived the lease', async () => {
    const { clock, locks } = bench({ ttl: '3s' })
    const work = locks.using('a', () => {
      clock.pass(3000)
      return 'done, but when?'
    })
    await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' })
  })

  test('rejects with LeaseLostError when only the release finds that the lease was no longer ours', async () => {
    const { engine, locks, events } = bench()
    engine.next.release.push(() => ({ ours: false, awaited: 0 }))
    const lost = locks.using('a', ({ signal }) => expect(signal.aborted).toBe(false))
    await expect(lost).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'unnoticed', resources: ['a'] })
    expect(events.at(-1)).toMatchObject({ type: 'released', ours: false })
  })

  test('rejects with LeaseLostError when work gave its lease back itself, and it was no longer ours', async () => {
    const { engine, locks } = bench()
    engine.next.release.push(() => ({ ours: false, awaited: 0 }))
    await expect(locks.using('a', (lease) => lease.release())).rejects.toMatchObject({ reason: 'unnoticed' })
  })

  test('gives the result although the release failed: a failure to release is an event', async () => {
    const { engine, locks, events } = bench()
    engine.next.release.push(fails(new Error('connection reset')))
    await expect(locks.using('a', () => 42)).resolves.toBe(42)
    expect(events.at(-1)).toMatchObject({ type: 'released', ours: 'unknown', cause: new Error('connection reset') })
  })

  test('gives the result of work that released its lease itself', async () => {
    const { engine, locks } = bench()
    const result = await locks.using('a', async (lease) => {
      await lease.release()
      return 42
    })
    expect(result).toBe(42)
    expect(engine.count('release')).toBe(1)
  })

  test('does not run the work when the lease can not be had', async () => {
    const it = bench()
    await neighbour(it).acquire('a')
    let ran = false
    await expect(it.locks.using('a', { wait: 0 }, () => (ran = true))).rejects.toMatchObject({ code: 'HELD' })
    expect(ran).toBe(false)
  })

  test('without work is a TypeError, before anything is acquired', async () => {
    const { engine, locks } = bench()
    await expect(locks.using('a', undefined as never)).rejects.toThrow(
      /^work: expected a function, the last argument of using, got undefined/,
    )
    expect(engine.calls).toEqual([])
  })
})

describe('inspect', () => {
  test('shows one lease or all of them, of whichever process', async () => {
    const it = bench({ ttl: '10s' })
    const mine = await it.locks.acquire('mine')
    const theirs = await neighbour(it).acquire('theirs', { ttl: '20s' })
    await it.clock.advance(1000)
    expect(await collect(it.locks.inspect('mine'))).toEqual([
      { resource: 'mine', owner: mine.owner, token: mine.token, remainingMs: 9000 },
    ])
    expect(await collect(it.locks.inspect())).toEqual([
      { resource: 'mine', owner: mine.owner, token: mine.token, remainingMs: 9000 },
      { resource: 'theirs', owner: theirs.owner, token: theirs.token, remainingMs: 19_000 },
    ])
    expect(await collect(it.locks.inspect('nobody’s'))).toEqual([])
  })

  test('of a name that is none throws at once', () => {
    const { locks } = bench()
    expect(() => locks.inspect('')).toThrow(RangeError)
  })
})

test('check asks the engine about the ttl in use', async () => {
  const { engine, locks } = bench({ ttl: '7s' })
  const check = vi.spyOn(engine, 'check')
  const [finding] = await locks.check()
  expect(finding).toMatchObject({ id: 'memory/one-process', severity: 'note' })
  expect(check).toHaveBeenCalledWith(7000)
})

test('owners are unique to each attempt and carry the label', async () => {
  const { locks, engine } = bench({ label: 'worker-7' })
  for (let i = 0; i < 20; i++) await locks.using('a', () => undefined)
  const owners = engine.calls.flatMap((call) => (call.op === 'acquire' ? [call.request.owner] : []))
  expect(new Set(owners).size).toBe(20)
  expect(owners.every((owner) => owner.endsWith('@worker-7'))).toBe(true)
})
