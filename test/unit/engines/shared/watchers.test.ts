import { expect, test } from 'vitest'
import { Watchers } from '../../../../src/engines/shared/watchers.ts'

test('a watcher is called for each of its resources, until its watch is closed', () => {
  const watchers = new Watchers()
  const called: string[] = []
  const close = watchers.add(['a', 'b'], () => called.push('first'))
  watchers.add(['b'], () => called.push('second'))
  expect(watchers.names()).toEqual(['a', 'b'])
  expect([watchers.wake('a'), watchers.wake('b'), watchers.wake('c')]).toEqual([1, 2, 0])
  expect(called).toEqual(['first', 'first', 'second'])
  close()
  close()
  expect([watchers.wake('a'), watchers.wake('b')]).toEqual([0, 1])
  expect([watchers.isWatched(['a']), watchers.isWatched(['a', 'b']), watchers.size]).toEqual([false, true, 1])
})

test('all are called once each, also those who watch several resources', () => {
  const watchers = new Watchers()
  let calls = 0
  watchers.add(['a', 'b'], () => calls++)
  watchers.wakeAll()
  expect(calls).toBe(1)
  watchers.clear()
  watchers.wakeAll()
  expect([calls, watchers.size]).toEqual([1, 0])
})

test('the same callback may watch twice: each watch ends by itself', () => {
  const watchers = new Watchers()
  let calls = 0
  const freed = (): void => void calls++
  const close = watchers.add(['a'], freed)
  watchers.add(['a'], freed)
  close()
  expect(watchers.wake('a')).toBe(1)
  expect(calls).toBe(1)
})
