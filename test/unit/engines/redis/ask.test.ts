import { describe, expect, test } from 'vitest'
import { Deadlines } from '../../../../src/deadlines.ts'
import { ask, type NodeOutcome } from '../../../../src/engines/redis/ask.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'
import { watched } from '../../bench.ts'

/** Asks three nodes that answer with their delay, or never when it is Infinity, or fail when it is negative. */
function asking(delaysMs: readonly number[], enough = Infinity) {
  const clock = new ManualClock(0)
  const nodes = delaysMs.map((delayMs) => ({ delayMs, client: undefined }))
  const heard: [number, NodeOutcome<number>['kind']][] = []
  const late: [number, NodeOutcome<number>['kind']][] = []
  const done = watched(
    ask(nodes, {
      deadlines: new Deadlines(clock),
      timeoutMs: 100,
      send: ({ delayMs }) =>
        new Promise<number>((resolve, reject) => {
          if (delayMs === Infinity) return
          clock.timer(() => (delayMs < 0 ? reject(new Error('down')) : resolve(delayMs)), Math.abs(delayMs))
        }),
      heard: (index, answer) => {
        heard.push([index, answer.kind])
        return heard.length >= enough
      },
      late: (index, answer) => void late.push([index, answer.kind]),
    }),
  )
  return { clock, heard, late, done }
}

describe('asking all nodes', () => {
  test('hears each answer as it comes, and is done with the last', async () => {
    const { clock, heard, done } = asking([30, -10, 20])
    await clock.advance(29)
    expect(done.state).toBe('pending')
    await clock.advance(1)
    expect(done.state).toBe('resolved')
    expect(heard).toEqual([
      [1, 'failed'],
      [2, 'answer'],
      [0, 'answer'],
    ])
  })

  test('does not wait for the slow ones when enough is known; their answers are late', async () => {
    const { clock, heard, late, done } = asking([10, 90, 20], 2)
    await clock.advance(20)
    expect(done.state).toBe('resolved')
    expect(heard).toHaveLength(2)
    await clock.advance(100)
    expect(heard).toHaveLength(2)
    expect(late).toEqual([[1, 'answer']])
  })

  test('counts a node that does not answer in time as failed, and its answer as late', async () => {
    const { clock, heard, late, done } = asking([10, Infinity, 150])
    await clock.advance(99)
    expect(done.state).toBe('pending')
    await clock.advance(1)
    expect(done.state).toBe('resolved')
    expect(heard).toEqual([
      [0, 'answer'],
      [1, 'failed'],
      [2, 'failed'],
    ])
    await clock.advance(100)
    expect(late).toEqual([[2, 'answer']])
  })

  test('leaves no timer behind', async () => {
    const { clock } = asking([1, 2, 3])
    await clock.advance(100)
    expect(clock.timers).toBe(0)
  })
})
