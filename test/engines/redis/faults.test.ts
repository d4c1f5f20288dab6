import { describe, expect, test } from 'vitest'
import { LeaseLostError, QuorumError } from '../../../src/errors.ts'
import type { LockEvent } from '../../../src/events.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { lockKeysBecome, startQuorum } from './faults-quorum.ts'

const faults = [
  { fault: 'stopped', strike: (node: RedisServer) => node.freeze(), heal: (node: RedisServer) => node.thaw() },
  { fault: 'killed', strike: (node: RedisServer) => node.kill(), heal: (node: RedisServer) => node.restart() },
]

/** Short enough to wait for its end, long enough for a machine that is busy for some seconds. */
const TTL_MS = 8000
/** A killed node comes back empty and sits out for so long, and a second. */
const MAX_TTL = { maxTtl: TTL_MS }

describe.concurrent.each(faults)('nodes that are $fault', ({ strike, heal }) => {
  test('a minority of them: acquire, exclusion, renewal, extend and release go on, and leave nothing behind', async () => {
    await using quorum = await startQuorum()
    const events: LockEvent[] = []
    const locks = quorum.locks({ ttl: TTL_MS, observe: (event) => events.push(event) }, MAX_TTL)
    const rival = quorum.locks({ ttl: TTL_MS }, MAX_TTL)
    const held = await locks.acquire('held')
    const minority = [quorum.nodes[0]!, quorum.nodes[3]!]
    await Promise.all(minority.map(strike))
    events.length = 0

    expect(await rival.tryAcquire('held')).toBeNull()
    const next = await locks.acquire('next', { wait: 0 })
    await next.extend()
    expect(await next.release()).toBe(true)
    await until(() => events.some(({ type, ...about }) => type === 'renewed' && ownerOf(about) === held.owner), {
      what: 'the lease from before was renewed',
      withinMs: TTL_MS,
    })
    await held.extend()
    expect([held.held, held.signal.aborted]).toEqual([true, false])
    expect(await held.release()).toBe(true)
    const after = await rival.acquire('held', { wait: 0 })
    expect(after.token).toBeGreaterThan(held.token)
    await after.release()

    await Promise.all(minority.map(heal))
    await lockKeysBecome(quorum.nodes, [], TTL_MS)
  })

  test('a majority of them: an acquire fails with the cause of each, works again afterwards and leaves nothing', async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks({ ttl: TTL_MS }, MAX_TTL)
    const before = await locks.acquire('order')
    await before.release()
    const majority = quorum.nodes.slice(0, 3)
    await Promise.all(majority.map(strike))

    const error = await failure(locks.acquire('order', { wait: 0 }))
    expect(error).toMatchObject({ code: 'QUORUM', quorum: 3, size: 5, transient: true, resources: ['order'] })
    const addresses = majority.map(({ host, port }) => `${host}:${port}`)
    expect(error.nodes.map(({ node }) => node).sort()).toEqual(addresses.sort())
    for (const { node, cause } of error.nodes) {
      expect(cause).toBeInstanceOf(Error)
      expect(error.message).toContain(`${node}: ${cause.message}`)
    }
    // The nodes that did vote for it have been told that it failed.
    await lockKeysBecome(quorum.nodes.slice(3), [], TTL_MS / 2)
    expect(await failure(locks.acquire('order', { wait: '3s' }))).toBeInstanceOf(QuorumError)

    await Promise.all(majority.map(heal))
    const after = await locks.acquire('order', { wait: '30s' })
    expect(after.token).toBeGreaterThan(before.token)
    expect(await after.release()).toBe(true)
    await lockKeysBecome(quorum.nodes, [], TTL_MS)
  })

  test('a majority of them: the signal of a held lease aborts before the lease can be over, and says unreachable', async () => {
    await using quorum = await startQuorum()
    const seen: string[] = []
    const order: string[] = []
    const observe = ({ type }: LockEvent): void => {
      seen.push(type)
      // From before anything is sent: not later than the lease can be over on any node. Two timers of one process fire
      // in their order, however late.
      if (type === 'attempt') setTimeout(() => order.push('over'), TTL_MS)
    }
    const lease = await quorum.locks({ ttl: TTL_MS, observe }, MAX_TTL).acquire('held')
    lease.signal.addEventListener('abort', () => order.push('aborted'))
    await Promise.all(quorum.nodes.slice(2).map(strike))

    await until(() => order.length === 2, { what: 'the signal aborted and the lease was over', withinMs: 3 * TTL_MS })
    expect(order).toEqual(['aborted', 'over'])
    expect(lease.held).toBe(false)
    const { reason } = lease.signal as { reason: unknown }
    expect(reason).toBeInstanceOf(LeaseLostError)
    expect(reason).toMatchObject({ reason: 'unreachable', cause: expect.any(QuorumError) })
    expect(seen).not.toContain('renewed')
    expect(seen).toContain('doubtful')
    await expect(lease.extend()).rejects.toThrow(LeaseLostError)
  })
})

function ownerOf(about: object): unknown {
  return 'owner' in about ? about.owner : undefined
}

async function failure(acquire: Promise<unknown>): Promise<QuorumError> {
  const error: unknown = await acquire.then(
    () => 'granted',
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(QuorumError)
  return error as QuorumError
}
