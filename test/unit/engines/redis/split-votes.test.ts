import { describe, expect, test } from 'vitest'
import { asksInOrder } from '../../../../src/engines/redis/split-votes.ts'

function request(round: number, contended = false) {
  return { resources: ['a'], owner: 'me', ttlMs: 1000, round, contended }
}

const ROUNDS = Array.from({ length: 20 }, (_, round) => round)

describe('a split vote', () => {
  test('is held again in node order, and all at once every fourth time', () => {
    expect(ROUNDS.slice(0, 6).map((round) => asksInOrder(request(round)))).toEqual([
      false,
      true,
      true,
      true,
      false,
      true,
    ])
  })

  test('is asked for in node order at once where rivals are known to be awake', () => {
    expect(asksInOrder(request(0, true))).toBe(true)
  })
})
