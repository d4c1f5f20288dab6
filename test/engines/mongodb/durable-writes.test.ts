import { once } from 'node:events'
import { MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { ManualClock } from '../../../harness/manual-clock.ts'
import { startMongodb } from '../../../harness/servers/mongodb.ts'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import { mongodbGuard } from '../../../src/guards/index.ts'
import { leaseOf } from '../../guards/suite.ts'
import { granted, held, open, request, type Opened } from './clients.ts'

const JOURNALED = { w: 1, j: true }
const MAJORITY = { w: 'majority', j: true }

/** Which commands were sent, and the write concern of each. */
function monitor(client: MongoClient): unknown[][] {
  const sent: unknown[][] = []
  client.on('commandStarted', ({ commandName, command }) => {
    const { writeConcern } = command as { writeConcern?: object }
    if (['hello', 'update', 'findAndModify'].includes(commandName)) sent.push([commandName, writeConcern])
  })
  return sent
}

async function grantExtendRelease({ engine }: Pick<Opened, 'engine'>, resource: string): Promise<bigint> {
  const lease = await granted(engine, request([resource]))
  expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
  expect(await engine.release(lease)).toMatchObject({ ours: true })
  return lease.token
}

test.each([
  { what: 'a server without a replica set: its journal', replicaSet: false, concern: JOURNALED },
  { what: 'a replica set: a majority of journals', replicaSet: true, concern: MAJORITY },
])('grant, extension and release wait, on $what; the servers are asked once', async ({ replicaSet, concern }) => {
  await using server = await startMongodb({ replicaSet })
  await using opened = open(server.url, { clock: new ManualClock() }, { monitorCommands: true })
  const sent = monitor(opened.client)
  await grantExtendRelease(opened, 'one')
  expect(sent).toMatchObject([
    ['hello', undefined],
    ['findAndModify', concern],
    ['update', concern],
    ['update', concern],
  ])
  sent.length = 0
  const lease = await granted(opened.engine, request(['one', 'two']))
  await opened.engine.release(lease)
  // One request takes both.
  expect(sent).toMatchObject([
    ['update', concern],
    ['update', concern],
  ])
})

test('a server without a replica set is restarted as one: from then on a majority, also if no request has failed', async () => {
  await using server = await startMongodb()
  await using opened = open(server.url, {}, { monitorCommands: true })
  const token = await grantExtendRelease(opened, 'order')
  const sent = monitor(opened.client)
  const isNoticed = once(opened.client, 'serverDescriptionChanged')
  await server.restartAsReplicaSet()
  // The driver watches the server, and sees it go, or sees what it is now.
  await isNoticed
  expect(await grantExtendRelease(opened, 'order')).toBe(token + 1n)
  expect(sent).toMatchObject([
    ['hello', undefined],
    ['findAndModify', MAJORITY],
    ['update', MAJORITY],
    ['update', MAJORITY],
  ])
})

test('a write that was meant for a server alone and reached a replica set is not believed', async () => {
  await using server = await startMongodb()
  // This driver tells nobody what it sees.
  const client = new MongoClient(server.url, { monitorCommands: true })
  const db = client.db('app')
  const discreet = {
    databaseName: 'app',
    client: { startSession: () => client.startSession() },
    collection: (name: string, options?: object) => db.collection(name, options),
    command: (command: object, options?: object) => db.command(command, options),
    admin: () => db.admin(),
  }
  const engine = mongodb(discreet)
  const token = await grantExtendRelease({ engine }, 'late')
  const sent = monitor(client)
  await server.restartAsReplicaSet()
  await expect(engine.acquire(request(['late']))).rejects.toMatchObject({
    code: 'ENGINE',
    transient: true,
    message: expect.stringContaining('The server ran without a replica set and now runs in one.'),
  })
  expect(sent[0]).toMatchObject(['findAndModify', JOURNALED])
  // It was freed again, and the next one asks the server what it is.
  expect(await held(engine, 'late')).toEqual([])
  sent.length = 0
  expect(await grantExtendRelease({ engine }, 'late')).toBe(token + 2n)
  expect(sent.slice(0, 2)).toMatchObject([
    ['hello', undefined],
    ['findAndModify', MAJORITY],
  ])
  await engine.close()
  await client.close()
})

test.each([
  { what: 'a server without a replica set', replicaSet: false, concern: JOURNALED },
  { what: 'a replica set', replicaSet: true, concern: { w: 'majority' } },
])('the guard does the same, for fences and for documents, on $what', async ({ replicaSet, concern }) => {
  await using server = await startMongodb({ replicaSet })
  const client = new MongoClient(server.url, { monitorCommands: true, writeConcern: { w: 1 } })
  const sent = monitor(client)
  const guard = mongodbGuard(client.db('app'), { clock: new ManualClock() })
  const accounts = client.db('other').collection<{ _id: string; balance: number }>('accounts')
  await guard.enter(leaseOf('a', 1n))
  await guard.adopt(leaseOf('a', 1n, 'etcd:'), 'redis:')
  await guard.documents(accounts).update(leaseOf('a', 1n), { _id: 'a' }, { $set: { balance: 1 } }, { upsert: true })
  await guard.documents(accounts).enter(leaseOf('a', 2n), { _id: 'a' })
  await client.withSession((session) =>
    guard.documents(accounts).update(leaseOf('a', 2n), { _id: 'a' }, { $inc: { balance: 1 } }, { session }),
  )
  expect(sent).toMatchObject([
    ['hello', undefined],
    ['update', concern],
    ['update', concern],
    ['update', concern],
    ['findAndModify', concern],
    ['update', concern],
  ])
  await client.close()
})
