import { expect, test } from 'vitest'
import { backOffMs } from '../../src/back-off.ts'

const growth = { firstMs: 100, mostMs: 1000 }

function pauses(fraction: number): number[] {
  return [0, 1, 2, 3, 4, 1000].map((failures) =>
    backOffMs({ id: () => '', fraction: () => fraction }, growth, failures),
  )
}

test('pauses double up to the longest, and lie in their last half', () => {
  expect(pauses(0)).toEqual([50, 100, 200, 400, 500, 500])
  expect(pauses(1)).toEqual([100, 200, 400, 800, 1000, 1000])
})

test('another factor makes them grow more slowly', () => {
  const random = { id: () => '', fraction: () => 1 }
  expect([0, 1, 2].map((failures) => backOffMs(random, { ...growth, factor: 1.25 }, failures))).toEqual([
    100, 125, 156.25,
  ])
})
