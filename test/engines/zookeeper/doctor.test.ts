import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { zookeeper, type ZookeeperOptions } from '../../../src/engines/zookeeper/index.ts'
import { startZookeeper, type ZookeeperServer } from '../../../harness/servers/zookeeper.ts'
import { rawClient } from './raw-client.ts'

/** Short sessions, quick to the disk, talkative. */
let brisk: ZookeeperServer
/** Long sessions, careless about its disk, says little. */
let slow: ZookeeperServer

beforeAll(async () => {
  const servers = await Promise.all([
    startZookeeper({ minSessionMs: 100, maxSessionMs: 4000, properties: { 'zookeeper.forceSync': 'yes' } }),
    startZookeeper({ minSessionMs: 2000, properties: { 'zookeeper.4lw.commands.whitelist': 'srvr' } }),
  ])
  ;[brisk, slow] = servers
})

afterAll(() => Promise.all([brisk.stop(), slow.stop()]))

let count = 0

async function found(
  id: string,
  servers: readonly ZookeeperServer[],
  options: ZookeeperOptions = {},
  { ttlMs = 1000, chroot = '' } = {},
): Promise<readonly Finding[]> {
  const address = `${servers.map(({ port }) => `127.0.0.1:${port}`).join(',')}${chroot}`
  const engine = zookeeper(driver, address, { path: `/doctor${count++}`, maxTtl: 2000, ...options })
  onTestFinished(() => engine.close())
  return (await engine.check(ttlMs)).filter((finding) => finding.id === id)
}

test('a single server is no quorum', async () => {
  expect(await found('zookeeper/quorum', [brisk])).toMatchObject([
    { severity: 'warning', found: 'There is only one server, no quorum.' },
  ])
})

test('servers that are no ensemble would give one lease to two: critical', async () => {
  expect(await found('zookeeper/quorum', [brisk, slow])).toMatchObject([
    { severity: 'critical', found: 'Of 2 servers, 2 run standalone: they form no ensemble.' },
  ])
})

test('the session that the servers grant is held against the ttl and maxTtl', async () => {
  expect(await found('zookeeper/session', [brisk])).toMatchObject([{ severity: 'ok' }])
  expect(await found('zookeeper/session', [brisk], { maxTtl: '3s' })).toMatchObject([
    { severity: 'warning', meaning: expect.stringContaining('more than 2000 ms are refused') },
  ])
  expect(await found('zookeeper/session', [brisk], { maxTtl: '3s' }, { ttlMs: 3000 })).toMatchObject([
    { severity: 'critical', meaning: expect.stringContaining('needs a session of 6000 ms') },
  ])
  expect(await found('zookeeper/session', [slow], { maxTtl: 500, requestTimeout: '5s' }, { ttlMs: 500 })).toMatchObject(
    [{ severity: 'note', meaning: expect.stringContaining('end after up to 2000 ms') }],
  )
})

test('a session of less than two ticks is critical, where the tick can be seen', async () => {
  expect(await found('zookeeper/tick', [brisk], { maxTtl: 100, requestTimeout: '5s' }, { ttlMs: 100 })).toMatchObject([
    { severity: 'critical', found: 'A tick lasts 200 ms, and a session 200 ms.' },
  ])
  expect(await found('zookeeper/tick', [brisk])).toEqual([])
})

test('whether writes reach the disk is a finding, where it can be seen', async () => {
  expect(await found('zookeeper/force-sync', [brisk])).toMatchObject([{ severity: 'ok', found: 'forceSync is on.' }])
  expect(await found('zookeeper/force-sync', [slow])).toMatchObject([{ severity: 'note' }])
  await using careless = await startZookeeper()
  expect(await found('zookeeper/force-sync', [careless])).toMatchObject([
    { severity: 'warning', found: expect.stringContaining('forceSync is off') },
  ])
})

test('znodes that are open to the world are a warning, and others are not', async () => {
  expect(await found('zookeeper/acl', [brisk])).toMatchObject([
    { severity: 'warning', found: expect.stringMatching(/^\/doctor\d+ is open to the world\.$/) },
  ])
  const auth = { scheme: 'digest', auth: 'alice:secret' }
  const closed = await found('zookeeper/acl', [brisk], { auth })
  expect(closed).toMatchObject([{ severity: 'ok', found: expect.stringMatching(/ belongs to digest:alice\.$/) }])
  expect(JSON.stringify(closed)).not.toContain('secret')
  expect(await found('zookeeper/acl', [brisk], { auth, acl: 'anyone' })).toMatchObject([{ severity: 'warning' }])
})

test('a write is timed, and empty folders are counted', async () => {
  expect(await found('zookeeper/round-trip', [brisk], {}, { ttlMs: 600_000 })).toMatchObject([{ severity: 'ok' }])
  expect(await found('zookeeper/round-trip', [brisk], {}, { ttlMs: 0.001 })).toMatchObject([{ severity: 'warning' }])
  const raw = await rawClient(`127.0.0.1:${brisk.port}`)
  await raw.create('/littered')
  await raw.create('/littered/dead')
  expect(await found('zookeeper/empty-folders', [brisk], { path: '/littered' })).toMatchObject([
    { severity: 'note', found: '/littered has 1 empty folder.' },
  ])
  expect(await found('zookeeper/empty-folders', [brisk])).toMatchObject([{ severity: 'ok' }])
})

test('without a chroot there is no session to speak of, and the remedy says why', async () => {
  expect(await found('zookeeper/session', [brisk], {}, { chroot: '/nowhere' })).toMatchObject([
    { severity: 'critical', remedy: 'Correct the connection string or the credentials.' },
  ])
})
