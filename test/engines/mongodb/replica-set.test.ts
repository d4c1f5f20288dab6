import { afterAll, beforeAll, expect, test } from 'vitest'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks } from '../../../src/locks.ts'
import { startMongodbReplicaSet, type MongodbReplicaSet } from '../../../harness/servers/mongodb.ts'
import { until } from '../../../harness/until.ts'
import { granted, held, open, request } from './clients.ts'

let set: MongodbReplicaSet

beforeAll(async () => {
  set = await startMongodbReplicaSet()
})

afterAll(() => set.stop())

test('the primary is killed while a lease is held and others wait: the lease stays held, they get it in turn, tokens grow', async () => {
  await using holding = open(set.url)
  await using waiting = open(set.url)
  const events: LockEvent[] = []
  const holders = createLocks(holding.engine, { ttl: '9s', observe: (event) => events.push(event) })
  const waiters = createLocks(waiting.engine, { ttl: '9s', wait: '50s' })
  const tokens: bigint[] = []
  const lease = await holders.acquire('order')
  tokens.push(lease.token)
  const sections = Array.from({ length: 3 }, () => waiters.using('order', ({ token }) => void tokens.push(token)))
  const primary = await set.primary()
  const killedMs = performance.now()
  await primary.kill()
  await set.primary()
  const electedMs = performance.now() - killedMs
  const before = events.filter(({ type }) => type === 'renewed').length
  await until(() => events.filter(({ type }) => type === 'renewed').length > before, {
    what: 'a renewal by the new primary',
    withinMs: 20_000,
  })
  expect(lease.held).toBe(true)
  // Nobody got in between.
  expect(tokens).toHaveLength(1)
  expect(await lease.release()).toBe(true)
  const releasedMs = performance.now()
  await Promise.all(sections)
  console.log(
    `new primary after ${Math.round(electedMs)} ms; three waiters had their turn ${Math.round(performance.now() - releasedMs)} ms after the release`,
  )
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)))
  expect(tokens).toHaveLength(4)
  await primary.restart()
})

test('the primary steps down under way: grants, extensions and releases go through, on the next one', async () => {
  // The driver's own monitoring does not survive, in a client of this kind, what its answers tell of a primary that steps down.
  await using opened = open(set.url, { requestTimeout: '20s' }, { useBigInt64: true })
  const { engine } = opened
  const lease = await granted(engine, request(['step']))
  const primary = await set.primary()
  await primary.command({ replSetStepDown: 20, secondaryCatchUpPeriodSecs: 5 })
  const [extension, other] = await Promise.all([engine.extend([lease]), granted(engine, request(['other step']))])
  expect(extension).toEqual([{ kind: 'held' }])
  expect(await engine.release(lease)).toMatchObject({ ours: true })
  expect(await engine.release(other)).toMatchObject({ ours: true })
  expect((await granted(engine, request(['step']))).token).toBe(lease.token + 1n)
})

test('without a majority nothing is granted, proved or released, also not what the primary has seen before', async () => {
  // Shorter than the second after which a primary without a majority steps down.
  await using opened = open(set.url, { requestTimeout: '250ms' })
  await using patient = open(set.url)
  const { engine } = opened
  const lease = await granted(patient.engine, request(['minority']))
  const primary = await set.primary()
  const others = set.nodes.filter((node) => node !== primary)
  for (const node of others) await node.freeze()
  try {
    const late = request(['no majority'])
    await expect(engine.acquire(late)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
    // The primary has it now, as late's, and changes nothing: no majority knows of that.
    await expect(engine.acquire(late)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
    expect(await engine.extend([lease])).toMatchObject([{ kind: 'unknown' }])
    await expect(engine.release(lease)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
  } finally {
    for (const node of others) await node.thaw()
  }
  await set.primary()
  const isFree = async (): Promise<boolean> =>
    [...(await held(patient.engine, 'minority')), ...(await held(patient.engine, 'no majority'))].length === 0
  await until(isFree, { what: 'nothing is held', withinMs: 20_000 })
})
