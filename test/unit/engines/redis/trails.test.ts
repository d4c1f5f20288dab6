import { describe, expect, test } from 'vitest'
import { Trails } from '../../../../src/engines/redis/trails.ts'

describe('a trail', () => {
  test('is kept while anything of its owner is under way, and forgotten with the last', () => {
    const trails = new Trails()
    const first = trails.begin('o')
    const second = trails.begin('o')
    expect(second).toBe(first)
    trails.done('o', first)
    expect(trails.get('o')).toBe(first)
    trails.done('o', second)
    expect(trails.size).toBe(0)
  })

  test('tells what is under way that the lease is over', () => {
    const trails = new Trails()
    const trail = trails.begin('o')
    trails.end('o')
    expect(trail.over).toBe(true)
    expect(trails.size).toBe(1)
    trails.done('o', trail)
    expect(trails.size).toBe(0)
  })

  test('of repaired nodes is kept until the lease is over: they must not count as proof', () => {
    const trails = new Trails()
    const trail = trails.begin('o')
    trail.repaired.add(2)
    trails.done('o', trail)
    expect(trails.get('o')?.repaired).toEqual(new Set([2]))
    trails.end('o')
    expect(trails.size).toBe(0)
  })

  test('that nobody began can be ended all the same, and one owner’s end is not another’s', () => {
    const trails = new Trails()
    const other = trails.begin('other')
    trails.end('o')
    expect(other.over).toBe(false)
    expect(trails.size).toBe(1)
  })
})
