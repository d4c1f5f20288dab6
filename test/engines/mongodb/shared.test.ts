import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Clock } from '../../../src/clock.ts'
import type { Engine } from '../../../src/engine.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { testLostGrant, testReaders } from '../shared/readers.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { open as openClient } from './clients.ts'

let alone: MongodbServer
let replicaSet: MongodbServer
const opened: AsyncDisposable[] = []

beforeAll(async () => {
  ;[alone, replicaSet] = await Promise.all([startMongodb(), startMongodb({ replicaSet: true })])
})

afterEach(async () => {
  for (const one of opened.splice(0)) await one[Symbol.asyncDispose]()
})

afterAll(() => Promise.all([alone.stop(), replicaSet.stop()]))

function open(url: string, clock?: Clock): Engine {
  const one = openClient(url, { requestTimeout: '10s', ...(clock === undefined ? {} : { clock }) })
  opened.push(one)
  return one.engine
}

describe('a server without a replica set', () => {
  testReaders((clock) => open(alone.url, clock))
})

describe('a replica set', () => {
  testReaders((clock) => open(replicaSet.url, clock))
})

test('a reader’s grant whose answer is lost is undone, and no other reader is', async () => {
  await using proxy = await startProxy(alone.port)
  const behind = open(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
  await testLostGrant(behind, open(alone.url), () => proxy.cutOnNextReply('findAndModify'))
  expect(proxy.lostReplies).toBe(1)
})

test('where the driver repeats a request whose answer is lost, the reader is granted once', async () => {
  await using proxy = await startProxy(replicaSet.port)
  const behind = open(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
  await grant(behind)
  const stays = await grant(open(replicaSet.url), { shared: true })
  const { resources } = stays
  proxy.cutOnNextReply('findAndModify')
  const reader = await grant(behind, { resources, shared: true })
  expect(proxy.lostReplies).toBe(1)
  expect(reader.token).toBe(stays.token)
  expect(await behind.release(reader)).toMatchObject({ ours: true })
  expect(await behind.release(reader)).toMatchObject({ ours: false })
})

test('the last reader’s release is in the change stream, and no earlier one is', async () => {
  const [one, two] = [open(replicaSet.url), open(replicaSet.url)]
  const first = await grant(one, { shared: true })
  const { resources } = first
  const second = await grant(one, { resources, shared: true })
  const woken: string[] = []
  const watch = two.watch!(resources, () => woken.push('freed'))
  expect(await watch.armed).toBe(true)
  const other = await grant(one)
  const after = two.watch!(other.resources, () => woken.push('other'))
  expect(await two.acquire(request({ resources, waits: true }))).toMatchObject({ kind: 'refused' })
  await one.release(first)
  await one.release(other)
  await expect.poll(() => woken).toEqual(['other'])
  await one.release(second)
  await expect.poll(() => woken).toEqual(['other', 'freed'])
  watch.close()
  after.close()
})
