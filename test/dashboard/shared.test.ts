import { describe, expect, test } from 'vitest'
import { Board } from '../../src/dashboard/server/board.ts'
import { dashboard, type AuditEntry } from '../../src/dashboard/index.ts'
import type { History, ProblemDetails } from '../../src/dashboard/protocol.ts'
import { memory } from '../../src/engines/memory.ts'
import type { LeaseInfo, LeaseRequest } from '../../src/engine.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { ask, post, Viewer } from './viewer.ts'

const READERS = { resource: 'x', token: 5n, remainingMs: 10_000, shared: true }
const A: LeaseInfo = { ...READERS, owner: 'a' }
const B: LeaseInfo = { ...READERS, owner: 'b' }
const WRITER: LeaseInfo = { resource: 'x', owner: 'w', token: 6n, remainingMs: 10_000 }

function seen(): { board: Board; clock: ManualClock; look: (...leases: readonly LeaseInfo[]) => void } {
  const clock = new ManualClock()
  const board = new Board(clock)
  const look = (...leases: readonly LeaseInfo[]): void => {
    board.begin()
    for (const lease of leases) board.see(lease)
    board.finish()
  }
  return { board, clock, look }
}

function types(board: Board): string[] {
  return board.history('x').entries.map(({ type, owner, token }) => `${type} ${owner} ${token}`)
}

describe('readers of one resource', () => {
  test('have a row each, which is renewed and goes alone', () => {
    const { board, clock, look } = seen()
    look(A, B)
    expect(board.changes().set).toMatchObject([
      { resource: 'x', key: 'x\na', owner: 'a' },
      { resource: 'x', key: 'x\nb', owner: 'b' },
    ])
    clock.pass(5000)
    look(A, { ...B, remainingMs: 5000 })
    expect(board.changes()).toEqual({ set: [], ends: [['x\na', 10_000]], gone: [] })
    look(B)
    expect(board.changes()).toMatchObject({ set: [], gone: ['x\na'] })
    look(WRITER)
    const { set, gone } = board.changes()
    expect(set).toMatchObject([{ resource: 'x', owner: 'w' }])
    expect(set[0]).not.toHaveProperty('key')
    expect(gone).toEqual(['x\nb'])
  })

  test('are each in the history of the resource, also with the same token', () => {
    const { board, clock, look } = seen()
    look(A)
    expect(types(board)).toEqual(['seen a 5'])
    look(A, B)
    clock.pass(1000)
    look(B)
    look(WRITER)
    expect(types(board)).toEqual(['released b 5', 'granted w 6', 'released a 5', 'granted b 5'])
  })

  test('are ended and extended here one at a time', () => {
    const { board, look } = seen()
    look(A, B)
    board.changes()
    board.forced(A)
    board.extended(B, 60_000)
    expect(board.changes()).toEqual({ set: [], ends: [['x\nb', 60_000]], gone: ['x\na'] })
    expect([board.longestMs(A), board.longestMs(B)]).toEqual([0, 60_000])
  })
})

function request(owner: string): LeaseRequest {
  return { resources: ['x'], owner, ttlMs: 60_000, shared: true }
}

test('a reader is released and extended by its owner; without the owner several with one token are left alone', async () => {
  const engine = memory()
  const audited: AuditEntry[] = []
  for (const owner of ['a', 'b', 'c']) await engine.acquire(request(owner))
  await using page = dashboard(engine, {
    auth: () => 'write',
    every: 100,
    onAudit: (entry) => audited.push(entry),
  })
  await using viewer = await Viewer.open(page)
  for (const owner of ['a', 'b', 'c']) await viewer.sees(`x\n${owner}`)
  const lease = { resource: 'x', token: '1' }

  const refused = await post(page, '/release', lease)
  expect(refused.status).toBe(409)
  expect(((await refused.json()) as ProblemDetails).detail).toBe(
    'several share it with this token, so owner must say which is meant',
  )
  expect((await post(page, '/release', { ...lease, owner: 7 })).status).toBe(400)
  const never = await post(page, '/release', { ...lease, owner: 'never heard of' })
  expect(await never.json()).toEqual({ ours: false })
  expect(await (await post(page, '/release', { ...lease, owner: 'b' })).json()).toEqual({ ours: true })
  const extension = await post(page, '/extend', { ...lease, owner: 'c', ttlMs: 120_000 })
  expect(await extension.json()).toEqual({ held: true })
  await viewer.misses('x\nb')
  await viewer.sees('x\nc', ({ endsInMs }) => (endsInMs ?? 0) > 60_000)
  expect((await viewer.sees('x\na')).endsInMs).toBeLessThanOrEqual(60_000)

  // One that is left is found by its token.
  expect(await (await post(page, '/release', { ...lease, owner: 'c' })).json()).toEqual({ ours: true })
  expect(await (await post(page, '/release', lease)).json()).toEqual({ ours: true })
  expect((await engine.acquire({ ...request('w'), shared: false })).kind).toBe('granted')
  expect(audited.map(({ action, outcome, owner }) => `${action} ${outcome} ${owner}`)).toEqual([
    'release refused a',
    'release not held never heard of',
    'release done b',
    'extend done c',
    'release done c',
    'release done a',
  ])
  const { entries } = (await (await ask(page, '/history?resource=x')).json()) as History
  expect(entries.filter(({ type }) => type === 'forced').map(({ owner }) => owner)).toEqual(['a', 'c', 'b'])
})
