import { MongoClient, type ClientSession, type Collection, type Db } from 'mongodb'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mongodbGuard, type MongodbGuard } from '../../src/guards/index.ts'
import { startProxy } from '../../harness/faults/proxy.ts'
import { startMongodb, type MongodbServer } from '../../harness/servers/mongodb.ts'
import { freshKey, onceSuite, resultSuite, runsSuite, type OnceBench } from './once-suite.ts'
import { freshResource, gate, leaseOf } from './suite.ts'

interface Counter {
  _id: string
  n: number
}

let server: MongodbServer
let client: MongoClient
let db: Db
let counters: Collection<Counter>

beforeAll(async () => {
  server = await startMongodb({ replicaSet: true })
  client = new MongoClient(server.url)
  db = client.db('test')
  counters = db.collection<Counter>('counters')
  await counters.insertOne({ _id: 'first', n: 0 })
  // The server looks for what is over once a second instead of once a minute.
  const admin = client.db('admin')
  await admin.command({ setParameter: 1, ttlMonitorSleepSecs: 1 })
  // It ends a transaction whose client has gone after this time; a lost connection does not end it.
  await admin.command({ setParameter: 1, transactionLifetimeLimitSeconds: 3 })
})

afterAll(async () => {
  await client?.close()
  await server?.stop()
})

const records = (): Collection<{ _id: string; until?: Date }> => db.collection('ringfence_guard_once')

function bench(): OnceBench<MongodbGuard<ClientSession>> {
  return {
    guard: (options) => mongodbGuard(db, options),
    add: (guard, lease, key, { counter, result, failure }, options) =>
      guard.once(
        lease,
        key,
        async (session) => {
          // By the session's own client: it may be another one than that of the test.
          const { client: owner } = session as unknown as { client: MongoClient }
          const own = owner.db('test').collection<Counter>('counters')
          await own.updateOne({ _id: counter }, { $inc: { n: 1 } }, { upsert: true, session })
          if (failure !== undefined) throw new Error(failure)
          return result
        },
        options,
      ),
    read: async (counter) => (await counters.findOne({ _id: counter }))?.n ?? 0,
    has: async (key) => (await records().countDocuments({ _id: key })) > 0,
    endsAt: async (key) => (await records().findOne({ _id: key }))?.until?.getTime(),
    end: async (key) => {
      await records().updateOne({ _id: key }, { $set: { until: new Date(0) } })
    },
    async through({ port }, options) {
      const far = new MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`)
      return { guard: mongodbGuard(far.db('test'), options), close: () => far.close() }
    },
    port: () => server.port,
    commit: 'commitTransaction',
  }
}

onceSuite('mongodb', bench)
resultSuite('mongodb', bench)
runsSuite('mongodb', (options) => mongodbGuard(db, options))

test('the commit arrives, its answer is lost, and the server is not reached again: a transient error', async () => {
  await using proxy = await startProxy(server.port)
  const far = new MongoClient(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`, {
    serverSelectionTimeoutMS: 500,
  })
  const { add, read } = bench()
  const [guard, counter, key] = [mongodbGuard(far.db('test')), freshResource(), freshKey()]
  await add(guard, leaseOf(counter, 1n), freshKey(), { counter: 'any' })
  proxy.cutOnNextReply('commitTransaction')
  const adding = add(guard, leaseOf(counter, 1n), key, { counter, result: 1 })
  await proxy.refuse(true)
  await expect(adding).rejects.toMatchObject({
    code: 'GUARD',
    transient: true,
    message: expect.stringContaining(`whether '${key}' took effect is unknown`) as string,
  })
  expect(await add(mongodbGuard(db), leaseOf(counter, 1n), key, { counter })).toMatchObject({ ran: false, value: 1 })
  expect(await read(counter)).toBe(1)
  await far.close()
})

test('while the key is taken by open work elsewhere, a call is given up in time, with an error to try again', async () => {
  const guard = mongodbGuard(db)
  const [key, inside, leave] = [freshKey(), gate(), gate()]
  const winner = guard.once(leaseOf(freshResource(), 1n), key, async () => {
    inside.open()
    await leave.opened
    return 1
  })
  await inside.opened
  const lease = leaseOf(freshResource(), 1n)
  const hasty = mongodbGuard(db, { requestTimeout: 300 })
  await expect(hasty.once(lease, key, () => 2)).rejects.toMatchObject({ code: 'GUARD', transient: true })
  leave.open()
  await winner
  expect(await guard.once(lease, key, () => 3)).toMatchObject({ ran: false, value: 1 })
})

test('without a replica set there is no once, and the error says so; runs are recorded there too', async () => {
  await using alone = await startMongodb({ replicaSet: false })
  const own = new MongoClient(alone.url)
  const guard = mongodbGuard(own.db('test'))
  await expect(guard.once(leaseOf('a', 1n), 'k', () => 1)).rejects.toMatchObject({
    code: 'GUARD',
    transient: false,
    message: expect.stringContaining('need a replica set') as string,
  })
  await guard.recordRun({ job: 'j', owner: 'o@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 1 })
  expect(await guard.runs('j')).toHaveLength(1)
  await own.close()
})

test('the first calls of six clients at once, in a database without collections of the guard', async () => {
  const clients = Array.from({ length: 6 }, () => new MongoClient(server.url))
  const name = `fresh_${process.pid}`
  const effects = client.db(name).collection<Counter>('effects')
  await client.db(name).createCollection('effects')
  const calls = clients.flatMap((own, index) =>
    ['one', 'two'].map(async (key) => {
      const lease = leaseOf(`${key}:${index}`, 1n)
      return mongodbGuard(own.db(name)).once(lease, key, async (session) => {
        await own
          .db(name)
          .collection<Counter>('effects')
          .updateOne({ _id: key }, { $inc: { n: 1 } }, { upsert: true, session })
        return { key, index }
      })
    }),
  )
  const got = await Promise.all(calls)
  expect(got.filter(({ ran }) => ran)).toHaveLength(2)
  expect(new Set(got.map(({ value }) => JSON.stringify(value))).size).toBe(2)
  expect(await effects.find().sort({ _id: 1 }).toArray()).toEqual([
    { _id: 'one', n: 1 },
    { _id: 'two', n: 1 },
  ])
  for (const own of clients) await own.close()
})

test.each(['once', 'transaction'] as const)(
  '%s, whose transaction the server has ended before the commit: a transient error, and nothing is committed',
  async (call) => {
    const guard = mongodbGuard(db)
    const [counter, inside] = [freshResource(), { kill: true }]
    const work = async (session: ClientSession): Promise<number> => {
      await counters.updateOne({ _id: counter }, { $inc: { n: 1 } }, { upsert: true, session })
      if (inside.kill) await db.command({ killSessions: [session.id] })
      return 1
    }
    const key = freshKey()
    const write = async (): Promise<unknown> => {
      const lease = leaseOf(counter, 1n)
      return call === 'once' ? guard.once(lease, key, work) : guard.transaction(lease, work)
    }
    await expect(write()).rejects.toMatchObject({
      code: 'GUARD',
      transient: true,
      message: expect.stringContaining('nothing was committed') as string,
    })
    expect(await bench().read(counter)).toBe(0)
    inside.kill = false
    await write()
    expect(await bench().read(counter)).toBe(1)
  },
)

test('collections are named after that of the fences', async () => {
  const guard = mongodbGuard(db, { collection: 'mine' })
  await guard.once(leaseOf('a', 1n), 'k', () => 1)
  expect(await db.collection('mine_once').countDocuments()).toBe(1)
})
