import { describe, expect, test } from 'vitest'
import { LEVEL, readLook, type NodeLook } from '../../../../../src/engines/redis/voters/stamp.ts'
import { dependsOnOthers, isNew, standingOf } from '../../../../../src/engines/redis/voters/standing.ts'

const SIT_OUT_MS = 61_000
const NOW_MS = 1_700_000_000_000
const MEMORY = { inUse: true, votedAgoMs: undefined }
const AUTO = { restart: 'auto', sitOutMs: SIT_OUT_MS, forgetsNothing: false } as const
const DURABLE = { ...AUTO, forgetsNothing: true }
const NO_FORMER = '0'.repeat(40)

interface Node {
  readonly stamp?: Readonly<Record<string, string | number>>
  readonly uptimeS?: number
  readonly role?: string
  readonly former?: string
}

function lookAt({ stamp = {}, uptimeS = 5, role = 'master', former = NO_FORMER }: Node): NodeLook {
  const pairs = Object.entries(stamp).flatMap(([name, value]) => [name, String(value)])
  return readLook(['now', String(uptimeS), String(NOW_MS), pairs, role, former], SIT_OUT_MS)
}

function ago(seconds: number): number {
  return NOW_MS - seconds * 1000
}

/** Let in, in an earlier run. */
const FORMER = { 'epoch:61000': 'before a', id: 'a', seen: ago(10), durable: 1 }
/** Let in, in the present one. */
const OTHER = { 'epoch:61000': 'now b', id: 'b', seen: ago(10), durable: 1 }

describe('a node that has been up for long enough', () => {
  const look = lookAt({ uptimeS: 100, stamp: { ...FORMER, seen: ago(500) } })
  const usedAgo = (seconds: number): NodeLook => lookAt({ uptimeS: 1000, stamp: { ...OTHER, seen: ago(seconds) } })

  test('is welcome if no node was used since it started', () => {
    expect(standingOf(look, [usedAgo(500), usedAgo(400)], MEMORY, AUTO)).toEqual({
      kind: 'welcome',
      why: 'has sat out',
    })
  })

  test('sits out if one of the others did not answer', () => {
    expect(standingOf(look, [usedAgo(500), undefined], MEMORY, AUTO)).toMatchObject({ kind: 'out' })
    expect(standingOf(look, undefined, MEMORY, AUTO)).toMatchObject({ kind: 'out' })
  })

  test('sits out if it may have been used after the date in the stamp: a sixth of the time, and a second', () => {
    const least = 100 + 61 / 6 + 1
    expect(standingOf(look, [usedAgo(least - 0.01)], MEMORY, AUTO)).toMatchObject({ kind: 'out' })
    expect(standingOf(look, [usedAgo(least + 0.01)], MEMORY, AUTO)).toMatchObject({ kind: 'welcome' })
    const voted = { inUse: true, votedAgoMs: (least - 0.01) * 1000 }
    expect(standingOf(look, [usedAgo(500)], voted, AUTO)).toMatchObject({ kind: 'out' })
  })

  test('sits out if something else is in the place of its stamp, or of that of another node', () => {
    const foreign = lookAt({ uptimeS: 100, stamp: { foreign: 1 } })
    expect(foreign).toMatchObject({ isTraced: true, isAdmitted: false, isStamped: false })
    expect(standingOf(foreign, [usedAgo(500)], MEMORY, AUTO)).toMatchObject({ kind: 'out', level: LEVEL.used })
    expect(standingOf(look, [foreign], MEMORY, AUTO)).toMatchObject({ kind: 'out' })
    expect(isNew([foreign], { inUse: false, votedAgoMs: undefined }, AUTO)).toBe(false)
  })
})

describe('a node that forgets nothing', () => {
  const look = lookAt({ stamp: FORMER })
  const other = lookAt({ stamp: OTHER })
  const out = { kind: 'out', remainingMs: SIT_OUT_MS, level: LEVEL.used, why: { kind: 'restarted' } }

  test('is welcome when all others answer, and none has the same data', () => {
    expect(dependsOnOthers(look, DURABLE)).toBe(true)
    expect(standingOf(look, [other, other], MEMORY, DURABLE)).toEqual({ kind: 'welcome', why: 'forgets nothing' })
  })

  test('sits out when one does not answer, and is as whole after that', () => {
    expect(standingOf(look, [other, undefined], MEMORY, DURABLE)).toEqual({ ...out, whole: true })
    const later = lookAt({
      stamp: { ...FORMER, 'since.run': 'now', 'since.ms': ago(1), 'since.level': 1, 'since.whole': 1 },
    })
    expect(standingOf(later, [other, other], MEMORY, DURABLE)).toEqual({ kind: 'welcome', why: 'forgets nothing' })
  })

  test('sits out when another one has the same data', () => {
    const original = lookAt({ stamp: { ...FORMER, 'epoch:61000': 'now c' } })
    expect(standingOf(look, [other, original], MEMORY, DURABLE)).toEqual({ ...out, whole: false })
  })

  test.each<[string, Node]>([
    ['it was a replica', { stamp: FORMER, former: `${'0'.repeat(39)}1` }],
    ['it is a replica', { stamp: FORMER, role: 'slave' }],
    ['it does not tell', { stamp: FORMER, role: '', former: '' }],
    ['it was not durable', { stamp: { ...FORMER, durable: 0 } }],
    ['it was used too long ago', { stamp: { ...FORMER, seen: ago(62) } }],
    [
      'it sat out in a run between',
      { stamp: { ...FORMER, 'since.run': 'between', 'since.ms': ago(9), 'since.level': 1 } },
    ],
    ['its data have no name', { stamp: { ...FORMER, id: '' } }],
  ])('sits out if %s', (_why, node) => {
    expect(standingOf(lookAt(node), [other, other], MEMORY, DURABLE)).toMatchObject({ kind: 'out', whole: false })
  })

  test("sits out with restart: 'strict'", () => {
    expect(standingOf(look, [other, other], MEMORY, { ...DURABLE, restart: 'strict' })).toMatchObject({ kind: 'out' })
  })
})

describe('a node that was let in for clients with another maxTtl', () => {
  test('is welcome if theirs is longer', () => {
    const look = lookAt({ stamp: { 'epoch:6000': 'now a', 'epoch:90000': 'now b' } })
    expect(standingOf(look, undefined, MEMORY, AUTO)).toEqual({ kind: 'welcome', why: 'has sat out' })
    const former = lookAt({ stamp: { 'epoch:90000': 'before b' } })
    expect(standingOf(former, undefined, MEMORY, AUTO)).toMatchObject({ kind: 'out', why: { kind: 'restarted' } })
  })

  test('sits out if it is shorter, from the first look', () => {
    const why = { kind: 'another maxTtl', sitOutMs: 6000 }
    const stamp = { 'epoch:6000': 'now a', seen: ago(1) }
    expect(standingOf(lookAt({ stamp }), undefined, MEMORY, AUTO)).toMatchObject({ remainingMs: SIT_OUT_MS, why })
    const later = lookAt({ stamp: { ...stamp, 'since.run': 'now', 'since.ms': ago(20), 'since.level': 1 } })
    expect(standingOf(later, undefined, MEMORY, AUTO)).toMatchObject({ remainingMs: 41_000, why })
  })
})
