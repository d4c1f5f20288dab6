import { expect, test } from 'vitest'
import { Latest } from '../../src/latest.ts'

test('what was set longest ago is forgotten first', () => {
  const latest = new Latest<number>(2)
  latest.set('a', 1).set('b', 2).set('a', 3).set('c', 4)
  expect([...latest]).toEqual([
    ['a', 3],
    ['c', 4],
  ])
})
