import { describe, expect, test } from 'vitest'
import { LeaseLostError } from '../../../src/errors.ts'
import type { Locks } from '../../../src/locks.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { until } from '../../../harness/until.ts'
import { lockKeysBecome, startQuorum, type Quorum } from './faults-quorum.ts'

/** More than a lease of 30 s lasts. */
const JUMP_MS = 40_000
const HOUR_MS = 3_600_000
const ROUNDS = 40
/** Nothing listens there, nor on the four after it. */
const CLOSED_PORT = 1
const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))

// The clock of a single server is shifted by a small library, which needs a C compiler.
describe.skipIf(!isAvailable('clock-shift'))('the clocks of nodes jump', { concurrent: true }, () => {
  test('by more than the ttl on a minority: the lease stays held, and nobody else gets it', async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const lease = await quorum.locks({ renew: false }).acquire('order')
    await onAllNodes(quorum, 'order')
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
    await onAllNodes(quorum, 'order')
    for (const node of quorum.nodes.slice(0, 3)) node.shiftClock(JUMP_MS)
    const second = await quorum.locks().acquire('order', { wait: 0 })
    expect([first.held, second.held]).toEqual([true, true])
    expect(second.token).toBeGreaterThan(first.token)

    await expect(first.extend()).rejects.toThrow(LeaseLostError)
    expect([first.held, second.held]).toEqual([false, true])
    await second.extend()
  })

  test('back to before their start in a new deployment: it is admitted all the same', async () => {
    await using quorum = await startQuorum({ clockShift: true })
    for (const node of quorum.nodes) node.shiftClock(-JUMP_MS)
    await using lease = await quorum.locks().acquire('order', { wait: 0 })
    expect(lease.held).toBe(true)
  })

  test('on one node, and another forgets its counters: order holds up to a second apart, and not beyond the sitting out', async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const ports = quorum.nodes.map(({ port }) => port)
    // The shortest there is: 5 s, of which 4 s are for the clients' clocks.
    const engineOptions = { maxTtl: '1s' } as const
    const reaching = (indexes: readonly number[]): Locks => {
      const own = ports.map((port, index) => (indexes.includes(index) ? port : CLOSED_PORT + index))
      return quorum.locks({ ttl: '1s' }, engineOptions, own)
    }
    await (await reaching([0, 1, 2, 3, 4]).acquire('other')).release()
    const before = reaching([0, 1, 2])
    const first: Record<string, bigint> = {}
    for (const [resource, aheadMs] of [['near', 900] as const, ['far', JUMP_MS] as const]) {
      quorum.nodes[0]!.shiftClock(aheadMs)
      const lease = await before.acquire(resource)
      first[resource] = lease.token
      await lease.release()
    }
    // The only one that both have in common.
    await quorum.nodes[2]!.kill()
    await quorum.nodes[2]!.restart()
    const after = reaching([2, 3, 4])
    const admitted = { what: 'the node votes again', withinMs: 30_000, everyMs: 100 }
    const near = await until(() => after.tryAcquire('near'), admitted)
    const far = await after.acquire('far')
    expect(near.token).toBeGreaterThan(first['near']!)
    // What docs/guarantees.md says is not promised.
    expect(far.token).toBeLessThan(first['far']!)
  })

  test(`again and again, one of them to and fro: tokens stay unique and in order (SEED=${seed})`, async () => {
    await using quorum = await startQuorum({ clockShift: true })
    const processes = [quorum.locks({ renew: false }), quorum.locks({ renew: false }), quorum.locks({ renew: false })]
    for (const locks of processes) await (await locks.acquire('order')).release()
    const fraction = sequence(seed)
    const offsets = quorum.nodes.map(() => 0)
    const tokens: bigint[] = []
    const jump = (): void => {
      const stays = Math.floor(fraction() * 4)
      for (const [index, node] of quorum.nodes.entries()) {
        const jitterMs = (fraction() - 0.5) * 6000
        offsets[index] = index === 4 ? (fraction() - 0.5) * HOUR_MS : offsets[index]! + (index === stays ? 0 : JUMP_MS)
        node.shiftClock(offsets[index] + jitterMs)
      }
    }
    for (let round = 0; round < ROUNDS; round++) {
      const locks = processes[Math.floor(fraction() * processes.length)]!
      // A jump ends the lease of the round before on three nodes, except where it arrives after the jump.
      const lease = await until(() => (jump(), locks.tryAcquire('order')), { what: 'the lease was over' })
      tokens.push(lease.token)
      await (fraction() < 0.5 ? lease.release() : undefined)
    }
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => Number(a - b)))
  })
})

/** The slowest nodes vote after the acquire has returned; a vote after the jump would not be over. */
function onAllNodes({ nodes }: Quorum, resource: string): Promise<void> {
  return lockKeysBecome(nodes, [resource])
}

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
