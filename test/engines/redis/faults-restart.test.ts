import { describe, expect, test } from 'vitest'
import { QuorumError } from '../../../src/errors.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { lockKeys, lockKeysBecome, restartEmpty, startQuorum } from './faults-quorum.ts'

const SITS_OUT =
  /^(restarted and may have forgotten leases|remembers nothing of this quorum \(.+\)): sits out for \d+ s more$/

describe.concurrent('a node that restarted empty', () => {
  test('gives no vote, says why and for how long, and the quorum of the others goes on', async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks()
    await (await locks.acquire('order')).release()
    const [forgetful, ...others] = quorum.nodes
    await restartEmpty(forgetful!)

    const lease = await locks.acquire('order', { wait: 0 })
    await lease.extend()
    expect(await lease.release()).toBe(true)

    // Now two are missing for a quorum, and with the vote of the restarted node there would be one.
    await Promise.all(others.slice(2).map((node) => node.kill()))
    const error = await failure(locks.acquire('order', { wait: 0 }))
    const cause = error.nodes.find(({ node }) => node === `127.0.0.1:${forgetful!.port}`)?.cause
    expect(cause?.message).toMatch(SITS_OUT)
    expect(cause).toMatchObject({ name: 'SittingOutError', remainingMs: expect.any(Number) })
    expect(error.message).toContain(cause?.message)
    expect(await lockKeys(forgetful!)).toEqual([])
  })

  test('votes again when every lease it may have forgotten is over', async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks({ ttl: '3s' }, { maxTtl: '3s' })
    const before = await locks.acquire('order')
    await before.release()
    const [forgetful, ...others] = quorum.nodes
    await Promise.all(others.slice(2).map((node) => node.kill()))
    await restartEmpty(forgetful!)
    const restarted = await uptimeSeconds(forgetful!)

    expect(await failure(locks.acquire('order', { wait: 0 }))).toMatchObject({ transient: true })
    const after = await locks.acquire('order', { wait: '30s' })
    expect(await uptimeSeconds(forgetful!)).toBeGreaterThanOrEqual(restarted + 3)
    expect(after.token).toBeGreaterThan(before.token)
    expect(await lockKeys(forgetful!)).toEqual(['order'])
  })

  test("votes at once with restart: 'trust'", async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks({}, { restart: 'trust' })
    const before = await locks.acquire('order')
    await before.release()
    const [forgetful, ...others] = quorum.nodes
    await Promise.all(others.slice(2).map((node) => node.kill()))
    await restartEmpty(forgetful!)
    const after = await locks.acquire('order', { wait: '10s' })
    expect(await uptimeSeconds(forgetful!)).toBeLessThan(60)
    expect(after.token).toBeGreaterThan(before.token)
  })

  test.each([
    { restart: 'auto', holders: 1 },
    { restart: 'trust', holders: 2 },
  ] as const)('makes for $holders holder(s) with restart: $restart', async ({ restart, holders }) => {
    await using quorum = await startQuorum()
    const ports = quorum.nodes.map(({ port }) => port)
    // The holder does not reach the last two nodes, so its quorum is exactly the first three.
    const proxies = await Promise.all(ports.slice(3).map((port) => startProxy(port)))
    const rival = quorum.locks({}, { restart })
    const holder = quorum.locks({ renew: false }, { restart }, [
      ...ports.slice(0, 3),
      ...proxies.map(({ port }) => port),
    ])
    await (await rival.acquire('warm-up')).release()
    await lockKeysBecome(quorum.nodes, [])
    for (const proxy of proxies) proxy.dropRequests(true)
    const lease = await holder.acquire('order')
    expect(await Promise.all(quorum.nodes.map(lockKeys))).toEqual([['order'], ['order'], ['order'], [], []])

    await restartEmpty(quorum.nodes[0]!)
    const again = await until(() => rival.tryAcquire('warm-up'), { what: 'the rival is let in', withinMs: 20_000 })
    expect(again.held).toBe(true)
    const second = await rival.tryAcquire('order')
    expect([lease.held, second?.held].filter(Boolean)).toHaveLength(holders)
    // Where there are two, a store that checks tokens obeys the second.
    expect((second?.token ?? lease.token + 1n) > lease.token).toBe(true)
    for (const proxy of proxies) await proxy.close()
  })
})

describe.concurrent('a deployment', () => {
  test('that is new does not wait', async () => {
    await using quorum = await startQuorum()
    await using lease = await quorum.locks().acquire('order', { wait: 0 })
    expect(lease.held).toBe(true)
    expect(await uptimeSeconds(quorum.nodes[0]!)).toBeLessThan(60)
  })

  test('that is new is admitted as a whole: it can lose a minority at once', async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks()
    await (await locks.acquire('order')).release()
    await Promise.all(quorum.nodes.slice(0, 2).map((node) => node.kill()))
    await using lease = await locks.acquire('order', { wait: 0 })
    expect(lease.held).toBe(true)
  })

  test("that is new waits with restart: 'strict'", async () => {
    await using quorum = await startQuorum()
    const locks = quorum.locks({ ttl: '5s' }, { restart: 'strict', maxTtl: '5s' })
    const error = await failure(locks.acquire('order', { wait: 0 }))
    for (const { cause } of error.nodes) expect(cause.message).toMatch(SITS_OUT)
    await using lease = await locks.acquire('order', { wait: '30s' })
    expect(lease.held).toBe(true)
  })

  test('of durable nodes that all restarted votes at once when all answer, and not before, with the leases it remembers', async () => {
    await using quorum = await startQuorum({ durable: true })
    const [holder, rival] = [quorum.locks({ renew: false }), quorum.locks()]
    const lease = await holder.acquire('order')
    await lockKeysBecome(quorum.nodes, ['order'])
    for (const node of quorum.nodes) await node.kill()
    // The first three would be a quorum. But as long as the others are away, each of them may be a copy of one of those.
    for (const node of quorum.nodes.slice(0, 3)) await node.restart()
    await expect(rival.acquire('next', { wait: '3s' })).rejects.toThrow(/may have forgotten leases: sits out for/)

    for (const node of quorum.nodes.slice(3)) await node.restart()
    await using next = await rival.acquire('next', { wait: '20s' })
    expect(next.held).toBe(true)
    expect(await uptimeSeconds(quorum.nodes[0]!)).toBeLessThan(60)
    expect(await rival.tryAcquire('order')).toBeNull()
    expect(lease.held).toBe(true)
    await lease.extend()
  })
})

async function uptimeSeconds(node: RedisServer): Promise<number> {
  return Number(/uptime_in_seconds:(\d+)/.exec(await node.cli('INFO', 'server'))?.[1])
}

async function failure(acquire: Promise<unknown>): Promise<QuorumError> {
  const error: unknown = await acquire.then(
    () => 'granted',
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(QuorumError)
  return error as QuorumError
}
