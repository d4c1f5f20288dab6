import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../../src/errors.ts'
import { hasEngine } from '../../support/engines.ts'
import { startQuorum } from './faults-quorum.ts'

/** More than a lease of 30 s lasts. */
const JUMP_MS = 40_000
const ROUNDS = 40
const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))

// The clock of a single server is shifted by a small library, which needs a C compiler.
describe.skipIf(!hasEngine('clock-shift'))('the clocks of nodes jump', () => {
  test('by more than the ttl on a minority: the lease stays held, and nobody else gets it', async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const lease = await quorum.locks({ renew: false }).acquire('order')
    for (const node of quorum.nodes.slice(0, 2)) {
      node.shiftClock(JUMP_MS)
      expect(await node.cli('EXISTS', 'order')).toBe('0')
    }
    const rival = quorum.locks()
    expect(await rival.tryAcquire('order')).toBeNull()
    await lease.extend()
    expect(await rival.tryAcquire('order')).toBeNull()
    expect(await lease.release()).toBe(true)
    expect((await rival.tryAcquire('order'))?.token).toBeGreaterThan(lease.token)
  })

  test('by more than the ttl on a majority: two hold at once, and the later one has the higher token', async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const first = await quorum.locks({ renew: false }).acquire('order')
    for (const node of quorum.nodes.slice(0, 3)) node.shiftClock(JUMP_MS)
    const second = await quorum.locks().acquire('order', { wait: 0 })
    expect([first.held, second.held]).toEqual([true, true])
    expect(second.token).toBeGreaterThan(first.token)

    await expect(first.extend()).rejects.toThrow(LeaseLostError)
    expect([first.held, second.held]).toEqual([false, true])
    await second.extend()
  })

  test(`again and again, to and fro: tokens stay unique and in order (SEED=${seed})`, async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const processes = [quorum.locks({ renew: false }), quorum.locks({ renew: false }), quorum.locks({ renew: false })]
    const fraction = sequence(seed)
    const tokens: bigint[] = []
    for (let round = 0; round < ROUNDS; round++) {
      for (const node of quorum.nodes) node.shiftClock(Math.round((2 * fraction() - 1) * JUMP_MS))
      const locks = processes[Math.floor(fraction() * processes.length)]!
      // Someone may still hold it, as far as a majority of the clocks goes.
      const lease = await locks.tryAcquire('order')
      tokens.push(...(lease === null ? [] : [lease.token]))
      await (fraction() < 0.7 ? lease?.release() : undefined)
    }
    expect(tokens.length).toBeGreaterThan(ROUNDS / 4)
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => Number(a - b)))
  })
})

/** The same numbers from 0 to 1 for the same seed (mulberry32). */
function sequence(from: number): () => number {
  let state = from
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
