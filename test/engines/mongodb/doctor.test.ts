import { runInNewContext } from 'node:vm'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Engine, Finding } from '../../../src/engine.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { startMongodb, startMongodbReplicaSet, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { until } from '../../../harness/until.ts'
import { mongodbGuard } from '../../../src/guards/mongodb.ts'
import { exercised, pageLines, recorded } from '../../operating/least-rights.ts'
import { open, type Opened } from './clients.ts'

const TTL_MS = 30_000
const noClock = !isAvailable('clock-shift')
let alone: MongodbServer
let replicaSet: MongodbServer

beforeAll(async () => {
  ;[alone, replicaSet] = await Promise.all([
    startMongodb({ clockShift: !noClock }),
    startMongodb({ replicaSet: true, auth: true }),
  ])
  await asRoot(async (root) => {
    const resource = { db: 'app', collection: 'ringfence' }
    const privileges = [{ resource, actions: ['find', 'insert', 'update'] }]
    const app = root.db('app')
    await app.command({ createRole: 'locker', privileges, roles: [] })
    await app.command({ createUser: 'locker', pwd: 'pw', roles: ['locker'] })
    await app.command({ createUser: 'reader', pwd: 'pw', roles: ['read'] })
  })
})

afterAll(() => Promise.all([alone.stop(), replicaSet.stop()]))

async function asRoot(work: (root: MongoClient) => Promise<unknown>): Promise<void> {
  const root = new MongoClient(replicaSet.url, { auth: { username: 'root', password: 'root' } })
  try {
    await work(root)
  } finally {
    await root.close()
  }
}

/** Gives the server what the page has for the shell. Returns how many commands that are. */
async function given(root: MongoClient, name: string): Promise<number> {
  const commands: object[] = []
  const shell = { getSiblingDB: () => shell, runCommand: (command: object) => void commands.push(command) }
  runInNewContext(pageLines(name), { db: shell })
  for (const command of commands) await root.db('app').command(command)
  return commands.length
}

/** Of each finding its id and severity, and the finding itself by its id. */
async function check(engine: Engine): Promise<{ all: string[]; of: (id: string) => Finding | undefined }> {
  const findings = await engine.check(TTL_MS)
  for (const { found, meaning } of findings) expect([found, meaning]).not.toContain('')
  return {
    all: findings.map(({ id, severity }) => `${severity} ${id}`),
    of: (id) => findings.find((finding) => finding.id === id),
  }
}

function login(username: string): { auth: { username: string; password: string }; authSource: string } {
  const isRoot = username === 'root'
  return { auth: { username, password: isRoot ? 'root' : 'pw' }, authSource: isRoot ? 'admin' : 'app' }
}

test('a server without a replica set: a warning, and a note that waiters poll', async () => {
  await using opened = open(alone.url)
  const { all, of } = await check(opened.engine)
  expect(all).toEqual([
    'ok mongodb/reachable',
    'ok mongodb/version',
    'warning mongodb/deployment',
    'ok mongodb/writes',
    'note mongodb/wake-up',
    'ok mongodb/collection',
    'ok mongodb/clock',
  ])
  expect(of('mongodb/version')?.found).toMatch(/^The server is MongoDB \d+\.\d+\./)
})

test('a replica set of one: a majority is all of it', async () => {
  await using opened = open(replicaSet.url, {}, login('root'))
  const { all, of } = await check(opened.engine)
  expect(all).toEqual([
    'ok mongodb/reachable',
    'ok mongodb/version',
    'ok mongodb/deployment',
    'warning mongodb/members',
    'ok mongodb/journal',
    'ok mongodb/writes',
    'ok mongodb/wake-up',
    'ok mongodb/collection',
    'ok mongodb/clock',
  ])
  expect(of('mongodb/members')?.found).toBe('The set has 1 member with data and 0 arbiters.')
})

describe('permissions', () => {
  test('a user who may only read can hold no lease', async () => {
    await using opened = open(replicaSet.url, {}, login('reader'))
    const { of } = await check(opened.engine)
    expect(of('mongodb/writes')).toMatchObject({ severity: 'critical' })
    expect(of('mongodb/writes')?.remedy).toContain('readWrite')
  })

  test('a user without change streams and without a look at the set can hold leases: waiters poll', async () => {
    await using opened = open(replicaSet.url, {}, login('locker'))
    const { all } = await check(opened.engine)
    expect(all).toEqual([
      'ok mongodb/reachable',
      'ok mongodb/version',
      'ok mongodb/deployment',
      'warning mongodb/members',
      'note mongodb/journal',
      'ok mongodb/writes',
      'warning mongodb/wake-up',
      'note mongodb/collection',
      'ok mongodb/clock',
    ])
    expect(await opened.engine.watch!(['any'], () => undefined).armed).toBe(false)
    expect(await opened.engine.acquire({ resources: ['a', 'b'], owner: 'o', ttlMs: 1000 })).toMatchObject({
      kind: 'granted',
    })
  })

  test('the user of docs/operating/databases.md has all that init and programs need', async () => {
    await asRoot(async (root) => {
      expect(await given(root, 'mongodb.js')).toBe(2)
      await root.db('app').dropCollection('ringfence')
    })
    const url = replicaSet.url.replace('//', '//app:change-this@').replace('/?', '/app?')
    const app = (): Opened => open(url)
    await using one = app()
    await using two = app()
    await using root = open(replicaSet.url, {}, login('root'))
    expect(await one.engine.init!()).toEqual(['Created the collection app.ringfence.'])
    const engines = [one.engine, two.engine]
    expect(await exercised(() => engines.pop()!, root.engine)).toEqual(['note mongodb/journal'])
    const client = new MongoClient(url)
    const store = mongodbGuard(client.db())
    await expect(recorded(store)).rejects.toThrow('not authorized')
    await asRoot(async (root) => expect(await given(root, 'mongodb-store.js')).toBe(1))
    await recorded(store)
    await client.close()
  })

  test('a wrong password', async () => {
    await using opened = open(replicaSet.url, {}, { auth: { username: 'root', password: 'wrong' } })
    const { all, of } = await check(opened.engine)
    expect(all).toEqual(['critical mongodb/reachable'])
    expect(of('mongodb/reachable')?.found).toContain('Authentication failed')
  })
})

describe('the collection', () => {
  test.each([
    ['expiring', 'critical', 'deletes documents by their age', {}],
    ['capped', 'critical', 'a capped collection', { capped: true, size: 4096 }],
    ['collated', 'warning', 'the collation en', { collation: { locale: 'en', strength: 1 } }],
    ['view', 'critical', 'a view', { viewOn: 'ringfence', pipeline: [] }],
  ])('%s: %s', async (collection, severity, found, options) => {
    await asRoot(async (root) => {
      await root.db('app').createCollection(collection, options)
      if (collection === 'expiring') {
        await root.db('app').collection(collection).createIndex({ until: 1 }, { expireAfterSeconds: 60 })
      }
    })
    await using opened = open(replicaSet.url, { collection }, login('root'))
    const { of } = await check(opened.engine)
    expect(of('mongodb/collection')).toMatchObject({ severity, found: expect.stringContaining(found) as string })
  })
})

// Both have members of their own.
test.concurrent('an arbiter: with one member with data down there is a primary, but no majority that acknowledges', async () => {
  await using set = await startMongodbReplicaSet({ members: 2, arbiters: 1 })
  await using opened = open(set.url)
  const sound = await check(opened.engine)
  expect(sound.of('mongodb/members')).toMatchObject({
    severity: 'warning',
    found: 'The set has 2 members with data and 1 arbiter.',
  })
  expect(sound.of('mongodb/writes')).toMatchObject({ severity: 'ok' })
  expect(sound.all).not.toContain('warning mongodb/health')
  const primary = await set.primary()
  const secondary = set.nodes.slice(0, 2).find((node) => node !== primary)!
  await secondary.kill()
  const seen = async (): Promise<boolean> => {
    const { all } = await check(opened.engine)
    return ['warning mongodb/health', 'critical mongodb/writes'].every((finding) => all.includes(finding))
  }
  expect(await until(seen, { what: 'both findings', withinMs: 40_000 })).toBe(true)
})

test.concurrent('three members, and a set that does not insist on the journal', async () => {
  await using set = await startMongodbReplicaSet({ config: { writeConcernMajorityJournalDefault: false } })
  await using opened = open(set.url)
  const { of } = await check(opened.engine)
  expect(of('mongodb/members')).toMatchObject({
    severity: 'ok',
    found: 'The set has 3 members with data and 0 arbiters.',
  })
  expect(of('mongodb/journal')).toMatchObject({ severity: 'warning' })
})

test('a majority that needs longer than a request has', async () => {
  await using opened = open(alone.url, { requestTimeout: '1ms' })
  const { of } = await check(opened.engine)
  expect(of('mongodb/writes')).toMatchObject({ severity: 'warning' })
})

test('a client with a single connection', async () => {
  await using opened = open(replicaSet.url, {}, { ...login('root'), maxPoolSize: 1 })
  const { of } = await check(opened.engine)
  expect(of('mongodb/wake-up')).toMatchObject({ severity: 'note', found: 'The client has maxPoolSize 1.' })
})

test('a clock that is off by a minute', async ({ skip }) => {
  skip(noClock, 'no C compiler, so no library that shifts clocks')
  await using opened = open(alone.url)
  alone.shiftClock(-60_000)
  try {
    const { of } = await check(opened.engine)
    expect(of('mongodb/clock')).toMatchObject({
      severity: 'warning',
      found: expect.stringMatching(/^The primary's clock is (59|60)\d{3} ms behind/) as string,
    })
  } finally {
    alone.shiftClock(0)
  }
})

test('a frozen server: the doctor returns in bounded time', async () => {
  await using opened = open(alone.url)
  await opened.engine.check(TTL_MS)
  await alone.freeze()
  try {
    const { all } = await check(opened.engine)
    expect(all).toEqual(['critical mongodb/reachable'])
  } finally {
    await alone.thaw()
  }
})

test('init creates the collection, and says that it is there the second time', async () => {
  await using opened = open(alone.url, { collection: 'made' })
  expect(await opened.engine.init!()).toEqual(['Created the collection app.made.'])
  expect(await opened.engine.init!()).toEqual(['The collection app.made existed already.'])
})
