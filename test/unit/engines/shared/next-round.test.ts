import { describe, expect, test } from 'vitest'
import { inRounds, withNextRound } from '../../../../src/engines/shared/next-round.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'

function request(round: number) {
  return { resources: ['a'], owner: 'me', ttlMs: 1000, round }
}

const SPLIT = { kind: 'refused', reason: 'split' } as const
const HELD = { kind: 'refused', reason: 'held', holder: 'someone' } as const
const ROUNDS = Array.from({ length: 20 }, (_, round) => round)

function nextRoundWithinMs(round: number, tookMs: number): number | undefined {
  return withNextRound(SPLIT, request(round), tookMs).retryWithinMs
}

describe('an attempt that nobody has won', () => {
  test('is made again within ever longer times, but 50 ms at most', () => {
    expect(ROUNDS.slice(0, 6).map((round) => nextRoundWithinMs(round, 1))).toEqual([1, 2, 4, 8, 16, 16])
    expect(nextRoundWithinMs(3, 20)).toBe(50)
  })

  test('is given up after some rounds', () => {
    const again = ROUNDS.filter((round) => nextRoundWithinMs(round, 1) !== undefined)
    expect(again).toEqual(ROUNDS.slice(0, 8))
  })

  test('is not what a refusal by a holder is', () => {
    expect(withNextRound(HELD, request(0), 1)).toEqual(HELD)
  })

  test('waits in proportion to the time that it took', async () => {
    const clock = new ManualClock()
    const attempt = async () => {
      await clock.advance(3)
      return SPLIT
    }
    expect(await inRounds(clock, request(1), attempt)).toEqual({ ...SPLIT, retryWithinMs: 6 })
    expect(await inRounds(clock, request(0), async () => HELD)).toEqual(HELD)
  })
})
