import { MongoClient, type ClientSession, type Collection, type Db } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { mongodbGuard, type Fenced, type MongodbGuard } from '../../src/guards/index.ts'
import { startMongodb, type MongodbServer } from '../../harness/servers/mongodb.ts'
import { freshResource, gate, guardSuite, leaseOf, type Bench } from './suite.ts'
import { lostLeaseTrials } from './lost-lease.ts'

interface Account {
  _id: string
  balance: number
}

let server: MongodbServer
let client: MongoClient
let db: Db
let accounts: Collection<Account>

beforeAll(async () => {
  server = await startMongodb({ replicaSet: true })
  client = new MongoClient(server.url)
  db = client.db('test')
  accounts = db.collection<Account>('accounts')
  await accounts.insertOne({ _id: 'first', balance: 0 })
})

afterAll(async () => {
  await client?.close()
  await server?.stop()
})

async function read(resource: string): Promise<number> {
  return (await accounts.findOne({ _id: resource }))?.balance ?? 0
}

async function put(lease: Fenced, balance: number, session: ClientSession): Promise<void> {
  for (const _id of lease.resources) await accounts.updateOne({ _id }, { $set: { balance } }, { upsert: true, session })
}

function bench(): Bench<MongodbGuard<ClientSession>> {
  return {
    guard: (options) => mongodbGuard(db, options),
    read,
    write: (guard, lease, value) => guard.transaction(lease, (session) => put(lease, value, session)),
  }
}

guardSuite('mongodb, in a transaction of the guard', bench)

guardSuite('mongodb, in a transaction of our own', () => ({
  ...bench(),
  async write(guard, lease, value) {
    // The driver's own form, which runs its function again after a conflict.
    await client.withSession((session) =>
      session.withTransaction(async () => {
        await guard.within(session, lease)
        await put(lease, value, session)
      }),
    )
  },
}))

async function each(lease: Fenced, step: (one: Fenced, filter: { _id: string }) => Promise<unknown>): Promise<void> {
  for (const resource of [...lease.resources].sort()) {
    await accounts.updateOne({ _id: resource }, { $setOnInsert: { balance: 0 } }, { upsert: true })
    expect(await step({ ...lease, resources: [resource] }, { _id: resource })).not.toBeNull()
  }
}

guardSuite(
  'mongodb, documents',
  () => {
    return {
      guard: (options) => mongodbGuard(db, options),
      read,
      enter: (guard, lease) => each(lease, (one, filter) => guard.documents(accounts).enter(one, filter)),
      adopt: (guard, lease, from) => each(lease, (one, filter) => guard.documents(accounts).adopt(one, filter, from)),
      write: (guard, lease, value) =>
        each(lease, (one, filter) => guard.documents(accounts).update(one, filter, { $set: { balance: value } })),
    }
  },
  { oneByOne: true },
)

describe('two holders at once', () => {
  test('the newer one gets in after the older has committed, and reads what it wrote', async () => {
    const guard = mongodbGuard(db)
    const resource = freshResource()
    const [inside, leave] = [gate(), gate()]
    const older = guard.transaction(leaseOf(resource, 1n), async (session) => {
      inside.open()
      await leave.opened
      await put(leaseOf(resource, 1n), 70, session)
    })
    await inside.opened
    let runs = 0
    const newer = guard.transaction(leaseOf(resource, 2n), async (session) => {
      runs++
      const account = await accounts.findOne({ _id: resource }, { session })
      await put(leaseOf(resource, 2n), account!.balance - 20, session)
    })
    leave.open()
    await older
    await newer
    expect(await read(resource)).toBe(50)
    expect(runs).toBe(1)
  })

  test('one whose fence was raised already can not commit after a newer one has entered', async () => {
    const guard = mongodbGuard(db, { requestTimeout: 500 })
    const [resource, other] = [freshResource(), freshResource()]
    // The fence has this token already, so raising it changes nothing; it must be in conflict with the newer one all the same.
    await guard.enter(leaseOf(resource, 1n))
    const session = client.startSession()
    session.startTransaction()
    await guard.within(session, leaseOf(resource, 1n))
    await put(leaseOf(other, 1n), 1, session)
    await expect(guard.transaction(leaseOf(resource, 2n), () => undefined)).rejects.toMatchObject({ code: 'GUARD' })
    await session.commitTransaction()
    await session.endSession()
    await guard.transaction(leaseOf(resource, 2n), () => undefined)
    await expect(guard.transaction(leaseOf(resource, 1n), () => undefined)).rejects.toMatchObject({ seen: 2n })
  })

  test('what our own transaction read before it entered is not trusted: it fails as a conflict', async () => {
    const guard = mongodbGuard(db)
    const resource = freshResource()
    await guard.enter(leaseOf(resource, 1n))
    const session = client.startSession()
    session.startTransaction({ readConcern: { level: 'snapshot' } })
    await accounts.findOne({ _id: resource }, { session })
    await guard.transaction(leaseOf(resource, 2n), (inner) => put(leaseOf(resource, 2n), 5, inner))
    await expect(guard.within(session, leaseOf(resource, 3n))).rejects.toMatchObject({ code: 112 })
    await session.endSession()
  })
})

describe('a transaction', () => {
  test('gives what the work gives; its error rolls back the work and the fence', async () => {
    const guard = mongodbGuard(db)
    const resource = freshResource()
    expect(await guard.transaction(leaseOf(resource, 1n), () => 'done')).toBe('done')
    const error = new Error('out of coffee')
    const failing = guard.transaction(leaseOf(resource, 5n), async (session) => {
      await put(leaseOf(resource, 5n), 5, session)
      throw error
    })
    await expect(failing).rejects.toBe(error)
    expect(await read(resource)).toBe(0)
    await guard.enter(leaseOf(resource, 2n))
  })

  test('does not run the work again when its own operations conflict', async () => {
    const guard = mongodbGuard(db)
    const resource = freshResource()
    let runs = 0
    const work = guard.transaction(leaseOf(resource, 1n), async (session) => {
      runs++
      await accounts.updateOne({ _id: 'first' }, { $inc: { balance: 1 } })
      await accounts.updateOne({ _id: 'first' }, { $inc: { balance: 1 } }, { session })
    })
    await expect(work).rejects.toMatchObject({ code: 112 })
    expect(runs).toBe(1)
  })

  test.each([
    ['commits it', (session: ClientSession) => session.commitTransaction()],
    [
      'commits it and starts another',
      async (session: ClientSession) => {
        await session.commitTransaction()
        session.startTransaction()
      },
    ],
    [
      'aborts it and starts another',
      async (session: ClientSession) => {
        await session.abortTransaction()
        session.startTransaction()
      },
    ],
  ])('rejects when the work %s', async (_what, end) => {
    const guard = mongodbGuard(db)
    const resource = freshResource()
    const work = guard.transaction(leaseOf(resource, 3n), async (session) => {
      await end(session)
      if (session.inTransaction()) await put(leaseOf(resource, 3n), 5, session)
    })
    await expect(work).rejects.toMatchObject({
      code: 'GUARD',
      message: expect.stringContaining('the work has ended the transaction'),
    })
    expect(await read(resource)).toBe(0)
  })

  test('rejects when an operation has ended it and the work passed over that', async () => {
    const work = mongodbGuard(db).transaction(leaseOf(freshResource(), 1n), async (session) => {
      await accounts.insertOne({ _id: 'first', balance: 0 }, { session }).catch(() => undefined)
    })
    await expect(work).rejects.toMatchObject({
      code: 'GUARD',
      transient: true,
      cause: { codeName: 'NoSuchTransaction' },
    })
  })

  test('of our own must be open', async () => {
    const session = client.startSession()
    await expect(mongodbGuard(db).within(session, leaseOf('a', 1n))).rejects.toThrow(
      'session: expected a session with an open',
    )
    await session.endSession()
  })
})

describe('documents', () => {
  test('enter gives the document without its fence, or null where there is none', async () => {
    const documents = mongodbGuard(db).documents(accounts)
    const _id = freshResource()
    expect(await documents.enter(leaseOf(_id, 1n), { _id })).toBeNull()
    expect(await documents.update(leaseOf(_id, 1n), { _id }, { $set: { balance: 1 } })).toBe(0)
    expect(await documents.update(leaseOf(_id, 1n), { _id }, { $set: { balance: 1 } }, { upsert: true })).toBe(1)
    expect(await documents.enter(leaseOf(_id, 2n), { _id })).toEqual({ _id, balance: 1 })
    expect(await documents.update(leaseOf(_id, 2n), { _id, balance: 9 }, { $set: { balance: 1 } })).toBe(0)
  })

  test('an upsert that the fence refuses makes no second document', async () => {
    const guard = mongodbGuard(db)
    const documents = guard.documents(accounts)
    const _id = freshResource()
    await documents.update(leaseOf(_id, 2n), { _id }, { $set: { balance: 1 } }, { upsert: true })
    const late = documents.update(leaseOf(_id, 1n), { _id }, { $set: { balance: 2 } }, { upsert: true })
    await expect(late).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(await accounts.countDocuments({ _id })).toBe(1)
    await expect(
      documents.update(leaseOf(_id, 1n), { balance: 7 }, { $set: { balance: 2 } }, { upsert: true }),
    ).rejects.toThrow('filter: expected an _id')
    expect(guard.rejections).toBe(1)
  })

  test('takes pipelines, and $max and $set beside its own', async () => {
    const documents = mongodbGuard(db).documents(accounts)
    const _id = freshResource()
    await accounts.insertOne({ _id, balance: 5 })
    await documents.update(leaseOf(_id, 1n), { _id }, [{ $set: { balance: { $add: ['$balance', 1] } } }])
    await documents.update(leaseOf(_id, 2n), { _id }, { $max: { balance: 9 }, $set: { name: 'x' } })
    expect(await accounts.findOne({ _id }, { projection: { _fence: 0 } })).toEqual({ _id, balance: 9, name: 'x' })
    await expect(documents.update(leaseOf(_id, 1n), { _id }, [{ $set: { balance: 0 } }])).rejects.toMatchObject({
      seen: 2n,
    })
    await expect(documents.update(leaseOf(_id, 2n), { _id }, { balance: 1 })).rejects.toThrow("got the field 'balance'")
  })

  test('wait for a majority, whatever the collection was told, and in a transaction for its commit', async () => {
    const own = new MongoClient(server.url, { monitorCommands: true, writeConcern: { w: 1 } })
    const sent: unknown[] = []
    own.on('commandStarted', ({ commandName, command }) => {
      const { writeConcern } = command as { writeConcern?: object }
      if (['update', 'findAndModify', 'commitTransaction'].includes(commandName)) sent.push([commandName, writeConcern])
    })
    const documents = mongodbGuard(own.db('test')).documents(own.db('test').collection<Account>('accounts'))
    const _id = freshResource()
    await documents.update(leaseOf(_id, 1n), { _id }, { $set: { balance: 1 } }, { upsert: true })
    await documents.enter(leaseOf(_id, 2n), { _id })
    await documents.adopt(leaseOf(_id, 1n, 'etcd:'), { _id }, 'redis:')
    await own.withSession(async (session) => {
      await documents.update(leaseOf(_id, 2n, 'etcd:'), { _id }, { $inc: { balance: 1 } }, { session })
      session.startTransaction({ writeConcern: { w: 'majority' } })
      await documents.update(leaseOf(_id, 2n, 'etcd:'), { _id }, { $inc: { balance: 1 } }, { session })
      await session.commitTransaction()
    })
    const majority = { w: 'majority' }
    expect(sent).toMatchObject([
      ['update', majority],
      ['findAndModify', majority],
      ['findAndModify', majority],
      ['update', majority],
      ['update', undefined],
      ['commitTransaction', majority],
    ])
    expect(await read(_id)).toBe(3)
    await own.close()
  })

  test.each([{ promoteLongs: false }, { useBigInt64: true }, { promoteValues: false }])(
    'a client with %o rounds no token',
    async (options) => {
      const own = new MongoClient(server.url, options)
      const guard = mongodbGuard(own.db('test'))
      const _id = freshResource()
      const [newer, older] = [leaseOf(_id, 2n ** 53n + 1n), leaseOf(_id, 2n ** 53n)]
      const stale = { seen: 2n ** 53n + 1n }
      await guard.enter(newer)
      await expect(guard.enter(older)).rejects.toMatchObject(stale)
      const documents = guard.documents(own.db('test').collection<Account>('accounts'))
      await documents.update(newer, { _id }, { $set: { balance: 1 } }, { upsert: true })
      await expect(documents.update(older, { _id }, { $set: { balance: 2 } })).rejects.toMatchObject(stale)
      await own.close()
    },
  )
})

test('without a replica set, one resource can be entered and documents updated, and the rest says what it needs', async () => {
  await using single = await startMongodb()
  const own = new MongoClient(single.url)
  const guard = mongodbGuard(own.db('test'), { requestTimeout: 1000 })
  await guard.enter(leaseOf('a', 2n))
  await expect(guard.enter(leaseOf('a', 1n))).rejects.toMatchObject({ seen: 2n })
  const documents = guard.documents(own.db('test').collection<Account>('accounts'))
  await documents.update(leaseOf('a', 2n), { _id: 'a' }, { $set: { balance: 1 } }, { upsert: true })
  await expect(guard.transaction(leaseOf('a', 2n), () => undefined)).rejects.toMatchObject({
    code: 'GUARD',
    transient: false,
    message: expect.stringContaining('need a replica set'),
  })
  await single.freeze()
  await expect(guard.enter(leaseOf('a', 2n))).rejects.toThrow('no answer within 1000 ms')
  await single.thaw()
  await own.close()
})

test('what is not a Db or a Collection is refused', () => {
  expect(() => mongodbGuard(client as never)).toThrow('db: expected a Db of mongodb (client.db()), got')
  expect(() => mongodbGuard(db, { collection: '' })).toThrow('collection: expected a name')
  expect(() => mongodbGuard(db).documents(db as never)).toThrow('collection: expected a Collection of mongodb')
})

describe('a lease that ends', () => {
  lostLeaseTrials<ClientSession>('mongodb', () => ({
    transaction: (lease, work) => mongodbGuard(db).transaction(lease, work),
    write: (session, resource, value) => put(leaseOf(resource, 0n), value, session),
    read,
  }))
})
