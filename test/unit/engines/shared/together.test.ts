import { expect, test } from 'vitest'
import { batches, together } from '../../../../src/engines/shared/together.ts'

test.each([
  [[], []],
  [
    [3, 4, 3, 1],
    [[3, 4, 3], [1]],
  ],
  [
    [11, 1, 9, 1],
    [[11], [1, 9], [1]],
  ],
])('%j in batches of at most 10', (sizes: number[], expected) => {
  expect(batches(sizes, 10, (size) => size)).toEqual(expected)
})

test('many things are worked on together, in bounds, and answered in their order', async () => {
  let [now, most] = [0, 0]
  const results = await together([30, 20, 10, 0, 5], 2, async (ms) => {
    most = Math.max(most, ++now)
    await new Promise((resolve) => setTimeout(resolve, ms))
    now--
    return ms * 2
  })
  expect(results).toEqual([60, 40, 20, 0, 10])
  expect(most).toBe(2)
  expect(await together([], 2, async () => 1)).toEqual([])
})
