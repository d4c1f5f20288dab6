import { expect, test } from 'vitest'
import { ByName } from '../../src/by-name.ts'

test('it is a map from names to objects, in the order in which the names came', () => {
  const map = new ByName<{ n: number }>()
  map.set('b', { n: 1 })
  map.set('a', { n: 2 })
  map.set('b', { n: 3 })
  map.delete('nobody')
  expect([map.size, map.get('b'), map.get('nobody')]).toEqual([2, { n: 3 }, undefined])
  expect([...map]).toEqual([
    ['b', { n: 3 }],
    ['a', { n: 2 }],
  ])
  map.delete('b')
  map.set('b', { n: 4 })
  expect([...map].map(([name]) => name)).toEqual(['a', 'b'])
})

test('names are taken as they are', () => {
  const map = new ByName<object>()
  for (const name of ['__proto__', 'constructor', '', '0']) expect(map.get(name)).toBe(undefined)
  map.set('__proto__', { here: true })
  expect(map.get('__proto__')).toEqual({ here: true })
})
