import { expect, test } from 'vitest'
import { permitOf, Permits } from '../../src/permits.ts'
import { ManualClock } from '../../harness/manual-clock.ts'

function permits(count: number): { clock: ManualClock; permits: Permits } {
  const clock = new ManualClock()
  const random = { id: () => '', fraction: () => 0 }
  return { clock, permits: new Permits('gpu', count, { clock, random }) }
}

test('those that may be free come first, then those that were seen held, the longest ago first', async () => {
  const it = permits(5)
  for (const permit of [3, 1, 4]) {
    it.permits.sawHeld(permit, 1000)
    await it.clock.advance(10)
  }
  const seen = [...it.permits.candidates()]
  expect(new Set(seen.slice(0, 2))).toEqual(new Set([0, 2]))
  expect(seen.slice(2)).toEqual([3, 1, 4])
  it.permits.forget(1)
  await it.clock.advance(975)
  expect([...it.permits.candidates()].slice(4)).toEqual([4])
})

test('what is forgotten or seen while they are tried one after the other changes nothing about that', () => {
  const it = permits(4)
  for (const permit of [0, 1, 2]) it.permits.sawHeld(permit, 1000)
  const seen: number[] = []
  for (const permit of it.permits.candidates()) {
    seen.push(permit)
    it.permits.forget(1)
    it.permits.forget(2)
    it.permits.sawHeld(3)
  }
  expect(seen).toEqual([3, 0, 1, 2])
})

test('a name is that of a permit if it ends with # and a number', () => {
  expect(permitOf('gpu#0')).toEqual({ pool: 'gpu', permit: 0 })
  expect(permitOf('a#b#999')).toEqual({ pool: 'a#b', permit: 999 })
  for (const other of ['gpu', 'gpu#', '#1', 'gpu#01', 'gpu#-1', 'gpu#1.5', 'gpu#12345', 'gpu#1 '])
    expect(permitOf(other)).toBeUndefined()
})
