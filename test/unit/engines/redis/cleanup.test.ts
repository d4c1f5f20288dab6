import { describe, expect, test } from 'vitest'
import { Deadlines } from '../../../../src/deadlines.ts'
import { OpenRequests } from '../../../../src/engines/redis/cleanup.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'

function makeOpen(clock = new ManualClock()): OpenRequests {
  return new OpenRequests(new Deadlines(clock))
}

describe('a requests', () => {
  test('is kept while anything of its owner is under way, and forgotten with the last', () => {
    const open = makeOpen()
    const first = open.begin('o')
    const second = open.begin('o')
    expect(second).toBe(first)
    open.done('o', first, 1000)
    expect(open.get('o')).toBe(first)
    open.done('o', second, 1000)
    expect(open.size).toBe(0)
  })

  test('tells what is under way that the lease is over', () => {
    const open = makeOpen()
    const requests = open.begin('o')
    open.end('o')
    expect(requests.over).toBe(true)
    expect(open.size).toBe(1)
    open.done('o', requests, 1000)
    expect(open.size).toBe(0)
  })

  test('of a lease that could not be left is undone, and not extended, once that is released', () => {
    const open = makeOpen()
    const requests = open.begin('o')
    Object.assign(requests, { over: true, left: { owner: 'o' } })
    expect(open.end('o')?.left).toBeUndefined()
  })

  test('of repaired nodes is kept until the lease is over: they must not count as proof', () => {
    const open = makeOpen()
    const requests = open.begin('o')
    requests.repaired.add(2)
    open.done('o', requests, 1000)
    expect(open.get('o')?.repaired).toEqual(new Set([2]))
    open.end('o')
    expect(open.size).toBe(0)
  })

  test('that nobody began can be ended all the same, and one owner’s end is not another’s', () => {
    const open = makeOpen()
    const other = open.begin('other')
    open.end('o')
    expect(other.over).toBe(false)
    expect(open.size).toBe(1)
  })

  test('of repaired nodes is forgotten when the lease has run out without a release', async () => {
    const clock = new ManualClock()
    const open = makeOpen(clock)
    const repair = (): void => {
      const requests = open.begin('o')
      requests.repaired.add(2)
      open.done('o', requests, 1000)
    }
    repair()
    // Renewed in time, it goes on.
    await clock.advance(900)
    repair()
    await clock.advance(900)
    expect(open.get('o')?.repaired).toEqual(new Set([2]))
    // A renewal without an answer is still under way.
    const unanswered = open.begin('o')
    await clock.advance(1000)
    expect(open.get('o')).toBe(unanswered)
    open.done('o', unanswered, 1000)
    await clock.advance(1000)
    expect(open.size).toBe(0)
  })
})
