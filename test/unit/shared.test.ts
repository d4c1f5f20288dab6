import { describe, expect, test } from 'vitest'
import type { LeaseRequest, QueuedGrant } from '../../src/engine.ts'
import { instant } from '../../src/clock.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks } from '../../src/locks.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { bench, neighbour, watched } from './bench.ts'

const SHARED = { shared: true } as const

describe('the option shared', () => {
  test('is refused on an engine without shared leases, with what to do', async () => {
    const engine = Object.assign(memory(), { guarantees: { ...memory().guarantees, shared: false } })
    const locks = createLocks(engine)
    const message =
      'shared: expected false, because the memory engine has no shared leases; take an exclusive lease, or an engine that ' +
      'has them (docs/kinds/shared.md)'
    for (const call of [
      () => locks.acquire('a', SHARED),
      () => locks.tryAcquire('a', SHARED),
      () => locks.using('a', SHARED, () => 1),
    ]) {
      await expect(call()).rejects.toThrow(new RangeError(message))
    }
    await expect(locks.using('a', { shared: false }, () => 1)).resolves.toBe(1)
  })

  test('is true or false', async () => {
    const { locks } = bench()
    await expect(locks.acquire('a', { shared: 'yes' as never })).rejects.toThrow(
      new TypeError("shared: expected true or false, got 'yes'"),
    )
  })

  test('is none of createLocks, elect and once, where it would make several leaders, or runs of a job', async () => {
    const { locks } = bench()
    const where = 'shared is an option of acquire, tryAcquire and using'
    expect(() => createLocks(memory(), SHARED as never)).toThrow(where)
    await expect(locks.elect('a', SHARED as never, () => 1)).rejects.toThrow(where)
    await expect(locks.once('a', SHARED as never, () => 1)).rejects.toThrow(where)
  })

  test('is on the lease and in its JSON', async () => {
    const { locks } = bench()
    const reader = await locks.acquire('a', SHARED)
    const writer = await locks.acquire('b')
    expect([reader.shared, writer.shared]).toEqual([true, false])
    expect([reader.toJSON().shared, writer.toJSON().shared]).toEqual([true, false])
  })

  test('reaches the engine with the attempt, the renewal and the release', async () => {
    const { clock, engine, locks } = bench({ ttl: '30s' })
    const lease = await locks.acquire('a', SHARED)
    await clock.advance(11_000)
    await lease.release()
    expect(engine.calls).toMatchObject([
      { op: 'acquire', request: { shared: true, waits: true } },
      { op: 'extend', leases: [{ shared: true }] },
      { op: 'release', lease: { shared: true } },
    ])
  })
})

describe('readers of one process', () => {
  test('hold together, and none of them is in the way of another', async () => {
    const { locks, leases } = bench({ wait: 0 })
    const readers = [await locks.acquire('a', SHARED), await locks.acquire(['a', 'b'], SHARED)]
    expect(await leases()).toHaveLength(3)
    await expect(locks.acquire('a')).rejects.toMatchObject({ code: 'HELD', holder: readers[0]!.owner })
    await readers[0]!.release()
    expect(readers[1]!.held).toBe(true)
    await expect(locks.acquire('a')).rejects.toMatchObject({ code: 'HELD', holder: readers[1]!.owner })
    await readers[1]!.release()
    const writer = await locks.acquire('a')
    expect(writer.token).toBeGreaterThan(readers[1]!.token)
  })

  test('that wait for a writer get in together, in their order, and ask the servers one after another', async () => {
    const { clock, locks, events } = bench({ wait: '1h' })
    const writer = await locks.acquire('a')
    const readers = Array.from({ length: 5 }, () => watched(locks.acquire('a', SHARED)))
    await clock.advance(10)
    expect(readers.every(({ state }) => state === 'pending')).toBe(true)
    await writer.release()
    await clock.advance(0)
    expect(readers.map(({ value }) => value?.held)).toEqual(readers.map(() => true))
    const granted = events.filter((event) => event.type === 'granted').map(({ owner }) => owner)
    expect(granted).toEqual([writer.owner, ...readers.map(({ value }) => value!.owner)])
    for (const { value } of readers) expect(value!.token).toBeGreaterThan(writer.token)
  })

  test('that wait for a writer elsewhere get in together too', async () => {
    const it = bench({ wait: '1h' })
    const writer = await neighbour(it).acquire('a', { ttl: '1h' })
    const readers = Array.from({ length: 5 }, () => watched(it.locks.acquire('a', SHARED)))
    await it.clock.advance(1000)
    // One of them asks for all.
    expect(it.engine.count('acquire')).toBe(2)
    await writer.release()
    await it.clock.advance(1)
    expect(readers.map(({ value }) => value?.held)).toEqual(readers.map(() => true))
  })

  test('that come behind a writer in line wait for it', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    const first = await locks.acquire('a', SHARED)
    const before = watched(locks.acquire('a', SHARED))
    await clock.advance(0)
    const writer = watched(locks.acquire('a'))
    const behind = [watched(locks.acquire('a', SHARED)), watched(locks.acquire('a', SHARED))]
    await clock.advance(5000)
    expect([before.state, writer.state, ...behind.map(({ state }) => state)]).toEqual([
      'resolved',
      'pending',
      'pending',
      'pending',
    ])
    await first.release()
    await clock.advance(100)
    expect(writer.state).toBe('pending')
    await before.value!.release()
    await clock.advance(100)
    expect([writer.state, ...behind.map(({ state }) => state)]).toEqual(['resolved', 'pending', 'pending'])
    await writer.value!.release()
    await clock.advance(100)
    expect(behind.map(({ value }) => value?.held)).toEqual([true, true])
  })

  test('get in within seconds when the writer in line before them gives up', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    await locks.acquire('a', SHARED)
    const controller = new AbortController()
    const writer = watched(locks.acquire('a', { signal: controller.signal }))
    const behind = watched(locks.acquire('a', SHARED))
    await clock.advance(100)
    controller.abort(new Error('changed my mind'))
    await clock.advance(0)
    expect([writer.state, behind.state]).toEqual(['rejected', 'pending'])
    // The servers keep readers out a while longer: they cannot know that the writer is gone.
    await clock.advance(3100)
    expect(behind.state).toBe('resolved')
  })
})

describe('a writer that waits for readers', () => {
  test('of its own process asks the servers, so that they keep later readers out', async () => {
    const it = bench({ wait: '1h', ttl: '1h' })
    const reader = await it.locks.acquire('a', SHARED)
    const writer = watched(it.locks.acquire('a'))
    await it.clock.advance(100)
    expect(await it.locks.tryAcquire('a', SHARED)).toBeNull()
    expect(await neighbour(it).tryAcquire('a', SHARED)).toBeNull()
    // As long as it waits.
    await it.clock.advance(60_000)
    expect(await neighbour(it).tryAcquire('a', SHARED)).toBeNull()
    await reader.release()
    await it.clock.advance(0)
    expect(writer.value?.held).toBe(true)
  })

  test('keeps nobody out any more when it has given up', async () => {
    const it = bench({ ttl: '1h' })
    await it.locks.acquire('a', SHARED)
    const writer = watched(it.locks.acquire('a', { wait: '2s' }))
    const behind = watched(neighbour(it).acquire('a', { ...SHARED, wait: '1h' }))
    await it.clock.advance(2000)
    expect([writer.state, behind.state]).toEqual(['rejected', 'pending'])
    expect(writer.reason).toMatchObject({ code: 'WAIT_TIMEOUT' })
    await it.clock.advance(3100)
    expect(behind.state).toBe('resolved')
  })

  test('gets in when the last of them ends by itself', async () => {
    const it = bench({ wait: '1h' })
    await it.locks.acquire('a', { ...SHARED, ttl: '5s', renew: false })
    await neighbour(it).acquire('a', { ...SHARED, ttl: '10s', renew: false })
    const writer = watched(it.locks.acquire('a', { ttl: '1h' }))
    await it.clock.advance(9999)
    expect(writer.state).toBe('pending')
    await it.clock.advance(1100)
    expect(writer.state).toBe('resolved')
  })

  test('takes a place in the queue of the servers, also for a reader of its own process', async () => {
    const asked: LeaseRequest[] = []
    const it = bench({ wait: '1h' }, { enqueue: queued })
    function queued(request: LeaseRequest): Promise<QueuedGrant> {
      asked.push(request)
      return new Promise((resolve) => {
        it.clock.timer(() => resolve({ kind: 'granted', token: 9n, since: instant(it.clock) }), 1000)
      })
    }
    await it.locks.acquire('a', SHARED)
    const writer = watched(it.locks.acquire('a'))
    await it.clock.advance(999)
    expect(writer.state).toBe('pending')
    await it.clock.advance(1)
    expect(writer.state).toBe('resolved')
    expect(asked).toMatchObject([{ resources: ['a'], shared: false }])
  })
})

describe('a shared lease is never handed over', () => {
  test('to a writer', async () => {
    const { clock, engine, locks } = bench({ wait: '1h' })
    const reader = await locks.acquire('a', SHARED)
    const writer = watched(locks.acquire('a'))
    await clock.advance(10)
    await reader.release()
    await clock.advance(10)
    expect(writer.state).toBe('resolved')
    expect(engine.count('handOver')).toBe(0)
  })

  test('and a reader is never handed the lease of a writer', async () => {
    const { clock, engine, locks } = bench({ wait: '1h' })
    const writer = await locks.acquire('a')
    const reader = watched(locks.acquire('a', SHARED))
    await clock.advance(10)
    await writer.release()
    await clock.advance(10)
    expect(reader.value).toMatchObject({ held: true, shared: true })
    expect(engine.count('handOver')).toBe(0)
  })
})

describe('the memory engine', () => {
  const request = (resources: string[], some: Partial<LeaseRequest> = {}): LeaseRequest => {
    return { resources, owner: `owner ${++owners}`, ttlMs: 10_000, ...some }
  }
  let owners = 0

  test('gives readers side by side one token, unless they want more than the others have', async () => {
    const engine = memory({ clock: new ManualClock() })
    const tokens = []
    for (const resources of [['a'], ['a'], ['a', 'b'], ['a', 'b'], ['b']]) {
      tokens.push(await engine.acquire(request(resources, SHARED)))
    }
    expect(tokens).toMatchObject([1n, 1n, 2n, 2n, 2n].map((token) => ({ kind: 'granted', token })))
  })

  test('says when a reader that a waiting writer keeps out can come again, which is not when the readers end', async () => {
    const clock = new ManualClock()
    const engine = memory({ clock })
    await engine.acquire(request(['a'], { ...SHARED, ttlMs: 60_000 }))
    expect(await engine.acquire(request(['a']))).toMatchObject({ kind: 'refused', remainingMs: 60_000 })
    expect(await engine.acquire(request(['a'], { waits: true }))).toMatchObject({ kind: 'refused', remainingMs: 1000 })
    await clock.advance(1000)
    const kept = await engine.acquire(request(['a'], SHARED))
    expect(kept).toEqual({ kind: 'refused', reason: 'held', remainingMs: 2000, writerWaits: true })
    await clock.advance(2000)
    expect(await engine.acquire(request(['a'], SHARED))).toMatchObject({ kind: 'granted' })
  })

  test('keeps readers out of a free resource for the writer that was to have it', async () => {
    const clock = new ManualClock()
    const engine = memory({ clock })
    const reader = request(['a'], SHARED)
    await engine.acquire(reader)
    const writer = request(['a'], { waits: true })
    await engine.acquire(writer)
    await engine.release({ ...reader, token: 1n })
    expect(await engine.acquire(request(['a'], SHARED))).toMatchObject({ kind: 'refused' })
    expect(await engine.acquire(writer)).toMatchObject({ kind: 'granted', token: 2n })
    await engine.release({ ...writer, token: 2n })
    // It has had its turn.
    expect(await engine.acquire(request(['a'], SHARED))).toMatchObject({ kind: 'granted', token: 3n })
  })
})

describe('an error about readers', () => {
  test('tells a reader that a writer waits, and not that others read', async () => {
    const it = bench()
    await neighbour(it).acquire('a', SHARED)
    const writing = watched(neighbour(it).acquire('a', { wait: '1h' }))
    await it.clock.advance(0)
    expect(writing.state).toBe('pending')
    await expect(it.locks.acquire('a', { ...SHARED, wait: 0 })).rejects.toThrow(
      "'a' is shared, and a writer waits for it, which keeps later readers out",
    )
    const late = watched(it.locks.acquire('a', { ...SHARED, wait: 500 }))
    await it.clock.advance(500)
    expect(String(late.reason)).toContain("waited 500 ms for 'a', shared, and a writer waits for it")
  })

  test('tells who reads and asks to write that it waits for itself', async () => {
    const it = bench()
    const inside =
      "'a' is shared by this very process for 0 ms; a call inside of the one that reads waits for itself: take the outer lease without shared"
    await it.locks.using('a', SHARED, async () => {
      await expect(it.locks.acquire('a', { wait: 0 })).rejects.toThrow(inside)
      const late = watched(it.locks.acquire('a', { wait: 500 }))
      await it.clock.advance(500)
      expect(String(late.reason)).toContain(
        "waited 500 ms for 'a', shared by this very process for 500 ms; a call inside",
      )
    })
  })
})
