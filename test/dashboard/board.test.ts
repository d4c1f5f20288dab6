import { describe, expect, test } from 'vitest'
import { Board } from '../../src/dashboard/server/board.ts'
import { dashboard } from '../../src/dashboard/index.ts'
import type { History } from '../../src/dashboard/protocol.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks, type Engine, type LeaseInfo } from '../../src/index.ts'
import { ManualClock, settled } from '../../harness/manual-clock.ts'
import { until } from '../../harness/until.ts'
import { ask, post, Viewer } from './viewer.ts'

interface Seen {
  board: Board
  clock: ManualClock
  look: (...leases: readonly Partial<LeaseInfo>[]) => void
}

function seen(): Seen {
  const clock = new ManualClock()
  const board = new Board(clock)
  const look = (...leases: readonly Partial<LeaseInfo>[]): void => {
    board.begin()
    for (const lease of leases)
      board.see({ resource: 'x', owner: `o${lease.token}`, token: 1n, remainingMs: 10_000, ...lease })
    board.finish()
  }
  return { board, clock, look }
}

const types = (board: Board, resource = 'x'): string[] =>
  board.history(resource).entries.map(({ type, token }) => `${type} ${token}`)

describe('history', () => {
  test('begins with what was held already', () => {
    const { board, clock, look } = seen()
    look({ token: 5n })
    clock.pass(500)
    look({ token: 5n })
    expect(board.history('x').entries).toMatchObject([{ type: 'seen', token: '5', agoMs: 500 }])
    expect(board.history('never heard of').entries).toEqual([])
  })

  test('comes with those in line, and since when they wait; another line is news', () => {
    const { board, clock, look } = seen()
    const since = clock.wallMs()
    const [one, two] = [`${'1'.repeat(32)}@one`, `${'2'.repeat(32)}@two`]
    look({ token: 5n, waiters: 1, line: [{ owner: one, since }] })
    board.changes()
    clock.pass(500)
    expect(board.history('x').line).toEqual([{ owner: one, label: 'one', waitedMs: 500 }])
    look({ token: 5n, waiters: 1, line: [{ owner: one, since }] })
    expect(board.changes().set).toEqual([])
    look({ token: 5n, waiters: 1, line: [{ owner: two, since }] })
    expect(board.changes().set).toHaveLength(1)
    expect(board.history('x').line).toMatchObject([{ label: 'two' }])
    expect(board.history('free').line).toEqual([])
  })

  test('tells a release from a lease that ran out', () => {
    const { board, clock, look } = seen()
    look()
    look({ token: 1n })
    clock.pass(1000)
    look()
    look({ token: 2n, remainingMs: 1500 })
    clock.pass(2000)
    look()
    expect(types(board)).toEqual(['lost 2', 'granted 2', 'released 1', 'granted 1'])
  })

  test('tells a hand-over, and a grant after a lease ran out unseen', () => {
    const { board, clock, look } = seen()
    look({ token: 1n })
    clock.pass(100)
    look({ token: 2n, remainingMs: 1000 })
    clock.pass(2000)
    look({ token: 3n })
    expect(types(board)).toEqual(['granted 3', 'lost 2', 'handed over 2'])
  })

  test('is bounded, for each resource and in all', () => {
    const { board, look } = seen()
    look()
    for (let token = 1n; token <= 30n; token++) look({ token })
    expect(types(board)).toHaveLength(20)
    const many = Array.from({ length: 6000 }, (_, index) => ({ resource: `r${index}`, token: 1n }))
    look(...many)
    expect(board.history('r5999').entries).toMatchObject([{ type: 'granted' }])
    // Forgotten, so that all that is known is what can be seen now.
    expect(board.history('r0').entries).toMatchObject([{ type: 'seen' }])
    expect(types(board)).toEqual(['released 30'])
  })

  test('knows what locks of the same process do between two looks, and tells it once', async () => {
    const clock = new ManualClock()
    const engine = memory({ clock })
    await using page = dashboard(engine, { auth: () => 'read', clock, every: 1000 })
    const locks = createLocks(engine, { clock, observe: page.observe })
    await using _viewer = await Viewer.open(page)
    await clock.advance(1500)
    await (await locks.acquire('short')).release()
    await locks.acquire('short')
    await clock.advance(3000)
    const { entries } = (await (await ask(page, '/history?resource=short')).json()) as History
    expect(entries.map(({ type, token }) => `${type} ${token}`)).toEqual(['granted 2', 'released 1', 'granted 1'])
    await locks.close()
  })
})

describe('a lock that is only offered', () => {
  const offer = { token: 0n, owner: 'heir', offered: true, remainingMs: 2000, waiters: 2 }

  test('has a row that says so, is no lease in the figures, and is not in the history', () => {
    const { board, clock, look } = seen()
    look()
    look({ token: 1n })
    board.changes()
    clock.pass(1000)
    look(offer)
    expect(board.changes().set).toMatchObject([
      { resource: 'x', owner: 'heir', offered: true, endsInMs: 2000, waiters: 2 },
    ])
    expect(board.figures()).toMatchObject({ leases: 0, waiters: 2, oldestMs: undefined })
    expect([board.size, types(board)]).toEqual([0, ['released 1', 'granted 1']])
    expect(board.history('x').lives).toHaveLength(1)
    clock.pass(1000)
    look({ token: 2n })
    expect(board.changes().set[0]).not.toHaveProperty('offered')
    expect(types(board)).toEqual(['granted 2', 'released 1', 'granted 1'])
    look(offer)
    look()
    expect(board.changes().gone).toEqual(['x'])
    expect(types(board)).toEqual(['released 2', 'granted 2', 'released 1', 'granted 1'])
  })

  test('after a lease that ran out is no release of it', () => {
    const { board, clock, look } = seen()
    look()
    look({ token: 1n, remainingMs: 1000 })
    clock.pass(2000)
    look(offer)
    expect(types(board)).toEqual(['lost 1', 'granted 1'])
  })
})

describe('what a page is told', () => {
  test('is news alone: not a lease that only runs down, nor an end that moved by a little', () => {
    const { board, clock, look } = seen()
    look({ remainingMs: 10_000 })
    expect(board.changes()).toMatchObject({ set: [{ resource: 'x', endsInMs: 10_000, ttlMs: 10_000 }] })
    clock.pass(1000)
    look({ remainingMs: 9100 })
    expect(board.news).toBe(0)
    clock.pass(1000)
    look({ remainingMs: 10_000 })
    expect(board.changes()).toEqual({ set: [], ends: [['x', 10_000]], gone: [] })
    look({ remainingMs: 10_000, waiters: 3 })
    expect(board.changes()).toMatchObject({ set: [{ waiters: 3 }], ends: [] })
    look({ remainingMs: undefined, waiters: 3 })
    expect(board.changes()).toMatchObject({ ends: [['x', null]] })
  })

  test('small moves add up: an end that creeps is told before it is off by much', () => {
    const { board, look } = seen()
    let told = 0
    for (let moved = 0; moved <= 1000; moved += 50) {
      look({ remainingMs: 10_000 + moved })
      told += board.changes().ends.length
    }
    expect(told).toBe(4)
  })

  test('how long it is held, exactly where the engine knows it, and else since it was first seen', () => {
    const { board, clock, look } = seen()
    look({ resource: 'a', heldMs: 5000 }, { resource: 'b' })
    clock.pass(1000)
    look({ resource: 'a', heldMs: 6000, waiters: 1 }, { resource: 'b', waiters: 1 })
    expect(board.changes().set).toMatchObject([
      { resource: 'a', heldMs: 6000, heldExact: true },
      { resource: 'b', heldMs: 1000, heldExact: false },
    ])
  })
})

test('a lease that is ended here does not come back by a look that had read it before', async () => {
  const clock = new ManualClock()
  const real = memory({ clock })
  let go: (() => void) | undefined
  const engine: Engine = Object.assign(Object.create(real) as Engine, {
    acquire: real.acquire.bind(real),
    release: real.release.bind(real),
    async *inspect(resource?: string) {
      const leases: LeaseInfo[] = []
      for await (const lease of real.inspect(resource)) leases.push(lease)
      // What it has read lies around for a while.
      if (resource === undefined && go === undefined) await new Promise<void>((resolve) => (go = resolve))
      yield* leases
    },
  })
  await real.acquire({ resources: ['x'], owner: 'o', ttlMs: 60_000 })
  await using page = dashboard(engine, { auth: () => 'write', clock, every: 1000 })
  await using viewer = await Viewer.open(page)
  await until(() => go, { what: 'a look under way' })
  expect(await (await post(page, '/release', { resource: 'x', token: '1' })).json()).toEqual({ ours: true })
  go!()
  await settled()
  await clock.advance(3000)
  expect(viewer.hasSnapshot).toBe(true)
  expect(viewer.heard.flatMap(({ name, data }) => (name === 'leases' ? (data as { set: unknown[] }).set : []))).toEqual(
    [],
  )
})

test('an engine that hangs is trouble, and is not asked twice at a time', async () => {
  const clock = new ManualClock()
  let looks = 0
  const engine: Engine = Object.assign(Object.create(memory({ clock })) as Engine, {
    limits: { maxTtlMs: 1000, driftMs: () => 0 },
    check: async () => [],
    // eslint-disable-next-line require-yield -- it hangs before it could
    async *inspect() {
      looks++
      await new Promise(() => undefined)
    },
  })
  const page = dashboard(engine, { auth: () => 'read', clock })
  await using viewer = await Viewer.open(page)
  await clock.advance(14_000)
  expect([looks, viewer.last('trouble')]).toEqual([1, undefined])
  await clock.advance(2000)
  expect(viewer.last('trouble')).toEqual({ message: 'the engine has not answered for 15000 ms' })
  // It is left alone for four times as long as it took.
  await clock.advance(58_000)
  expect(looks).toBe(1)
  await clock.advance(3000)
  expect(looks).toBe(2)
  // Nor is it waited for when all is over.
  const closed = page.close()
  await clock.advance(1001)
  await closed
})
