import { describe, expect, test } from 'vitest'
import type { EventOf, HistoryEvent } from '../../sim/history.ts'
import { access, ends, fault, history, lease, verdictOf } from './histories.ts'

const put = (at: number, token: number, value: number, call: number): HistoryEvent => ({
  ...(access('write', at, token, value - 1, value) as EventOf<'write'>),
  store: 'objects',
  call,
})

const counted = (at: number, value: number, call: number): HistoryEvent => ({
  at,
  kind: 'counted',
  process: 'p1',
  owner: 'o1',
  token: 1,
  store: 'objects',
  resource: 'a',
  call,
  value,
})

const inspected = (fromMs: number, at: number, ...owners: string[]): HistoryEvent => ({
  at,
  kind: 'inspected',
  process: 'p1',
  fromMs,
  resources: ['a'],
  owners,
})

describe('the guarded store of objects', () => {
  test('is true when each call wrote once and was told what', () => {
    const made = history(put(10, 1, 1, 1), counted(15, 1, 1), put(20, 2, 2, 2), counted(25, 2, 2))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'true' })
  })

  test('is false when one call wrote twice, whatever else was broken', () => {
    const made = history(fault(5, 'flushall'), put(10, 1, 1, 1), put(20, 1, 2, 1), counted(25, 2, 1))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'false', at: 20 })
  })

  test('is false when a call is told of what it did not write', () => {
    const made = history(put(10, 1, 1, 1), counted(15, 2, 1))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'false', at: 15 })
    expect(verdictOf('guarded store', history(put(10, 1, 1, 1), counted(15, 1, 2)))).toMatchObject({
      verdict: 'false',
    })
  })

  test('has tokens of its own: the other store may have seen newer ones', () => {
    const made = history(access('write', 10, 2, 0, 1), put(20, 1, 1, 1))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'true' })
    const older = history(put(10, 2, 1, 1), put(20, 1, 2, 2))
    expect(verdictOf('guarded store', older)).toMatchObject({ verdict: 'false' })
  })
})

describe('an inspection', () => {
  const held = [...lease('p0', 'x', 1, 100, 1100), ends('p0', 'x', 500)]

  test('is true when it names who had a lease all the time, and need not name others', () => {
    expect(verdictOf('inspection', history(...held, inspected(200, 300, 'x')))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('inspection', history(...held, inspected(50, 300)))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('inspection', history(...held, inspected(400, 600)))).toMatchObject({ verdict: 'true' })
  })

  test('is false when it does not name one, and unknown if a server had forgotten leases before', () => {
    expect(verdictOf('inspection', history(...held, inspected(200, 300)))).toMatchObject({ verdict: 'false', at: 300 })
    const flushed = history(...held, fault(150, 'flushall'), inspected(200, 300))
    expect(verdictOf('inspection', flushed)).toMatchObject({ verdict: 'unknown' })
    expect(verdictOf('inspection', history(...held))).toMatchObject({ verdict: 'unknown' })
  })
})
