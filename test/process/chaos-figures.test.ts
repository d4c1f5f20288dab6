import { describe, expect, test } from 'vitest'
import { disordered, shared, type Granted } from '../../chaos/ledger.ts'
import { longestGap, settled } from '../../chaos/spans.ts'

const whole = { fromMs: 0, toMs: 100 }
const three = { majority: 2, settleMs: 5 }

describe('when progress is owed', () => {
  test('without an outage, always', () => {
    expect(settled(whole, [[], [], []], three)).toEqual([whole])
    expect(settled(whole, [], { majority: 0, settleMs: 5 })).toEqual([whole])
  })

  test('one server of three may be away', () => {
    expect(settled(whole, [[{ fromMs: 10, toMs: 90 }], [], []], three)).toEqual([whole])
  })

  test('while two are away nothing is owed, nor until a majority has been well for a while', () => {
    const outages = [[{ fromMs: 10, toMs: 40 }], [{ fromMs: 20, toMs: 60 }], []]
    expect(settled(whole, outages, three)).toEqual([
      { fromMs: 0, toMs: 20 },
      { fromMs: 45, toMs: 100 },
    ])
  })

  test('a majority that was well for less than that owed nothing', () => {
    const outages = [[{ fromMs: 10, toMs: 40 }], [{ fromMs: 20, toMs: 44 }], [{ fromMs: 43, toMs: Infinity }]]
    expect(settled(whole, outages, three)).toEqual([
      { fromMs: 0, toMs: 20 },
      { fromMs: 49, toMs: 100 },
    ])
  })

  test('the longest gap counts from the beginning and to the end of each stretch', () => {
    const spans = [
      { fromMs: 0, toMs: 20 },
      { fromMs: 50, toMs: 100 },
    ]
    expect(longestGap(spans, [])).toEqual({ fromMs: 50, toMs: 100 })
    expect(longestGap(spans, [60, 95, 10])).toEqual({ fromMs: 60, toMs: 95 })
    expect(longestGap(spans, [55, 75, 99])).toEqual({ fromMs: 75, toMs: 99 })
    expect(longestGap([], [1])).toEqual({ fromMs: 0, toMs: 0 })
  })
})

function grant(token: bigint, startedMs: number, grantedMs: number, heldMs: number | null = null): Granted {
  return { account: 'a', token, startedMs, grantedMs, heldMs }
}

describe('tokens', () => {
  test('a lower or equal one is out of order only if it was asked for after the other had been granted', () => {
    expect(disordered([grant(1n, 0, 10), grant(3n, 20, 30), grant(2n, 25, 40)])).toEqual([])
    expect(disordered([grant(1n, 0, 10), grant(3n, 20, 30), grant(2n, 31, 40)])).toEqual(['a 2 after 3'])
    expect(disordered([grant(3n, 0, 10), grant(3n, 11, 30)])).toEqual(['a 3 after 3'])
    // One that took long was granted between the two, and hides neither.
    expect(disordered([grant(5n, 0, 10), grant(6n, 5, 20), grant(4n, 15, 30)])).toEqual(['a 4 after 5'])
  })
})

describe('holders', () => {
  test('two share an account if one was granted it before the other last held it', () => {
    expect(shared([grant(1n, 0, 10, 20), grant(2n, 20, 30, 40)])).toEqual([])
    expect(shared([grant(1n, 0, 10, null), grant(2n, 0, 11, 40)])).toEqual([])
    expect(shared([grant(1n, 0, 10, 35), grant(2n, 20, 30, 40)])).toEqual([{ fromMs: 30, toMs: 35 }])
  })
})
