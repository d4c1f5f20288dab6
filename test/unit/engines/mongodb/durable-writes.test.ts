import { expect, test } from 'vitest'
import { deploymentOf, DurableWrites, type DurableWrite } from '../../../../src/engines/mongodb/durable-writes.ts'

class FakeDb {
  hello: object = {}
  /** As a reply of a member has it. */
  operationTime: object | undefined
  questions = 0
  openSessions = 0
  /** What the next answer waits for. */
  delay: Promise<void> = Promise.resolve()

  /** The types of the servers as the driver sees them; undefined before it is connected. */
  seen: string[] | undefined

  get client() {
    const servers = new Map(this.seen?.map((type, index) => [`server ${index}`, { type }]))
    return {
      topology: this.seen === undefined ? undefined : { description: { servers } },
      startSession: (): { endSession(): Promise<void> } => {
        this.openSessions++
        return { endSession: async () => void this.openSessions-- }
      },
    }
  }

  async command(): Promise<object> {
    this.questions++
    await this.delay
    return this.hello
  }

  readonly write = async ({ deployment, inSession }: DurableWrite): Promise<string> => {
    if (this.operationTime !== undefined) Object.assign(inSession.session!, { operationTime: this.operationTime })
    return deployment
  }

  restartInSet(): void {
    this.hello = { setName: 'rs0' }
    this.operationTime = {}
  }

  restartAlone(): void {
    this.hello = {}
    this.operationTime = undefined
  }
}

test.each([
  [{ isWritablePrimary: true }, 'alone'],
  [{ isWritablePrimary: true, setName: 'rs0' }, 'replicated'],
  [{ isWritablePrimary: true, msg: 'isdbgrid' }, 'replicated'],
  [{ isWritablePrimary: false, isreplicaset: true }, 'replicated'],
])('hello %j: %s', (hello, deployment) => {
  expect(deploymentOf(hello)).toBe(deployment)
})

test('the server is asked once, by those who write at the same time too', async () => {
  const db = new FakeDb()
  const durable = new DurableWrites(db)
  expect(await Promise.all([durable.send(db.write), durable.send(db.write)])).toEqual(['alone', 'alone'])
  await durable.send(db.write)
  expect(db.questions).toBe(1)
  expect(db.openSessions).toBe(0)
})

test.each([
  [['Standalone'], 'alone'],
  [['RSSecondary', 'Unknown', 'RSPrimary'], 'replicated'],
  [['Mongos'], 'replicated'],
])('a driver that sees %j need not ask', async (seen, deployment) => {
  const db = new FakeDb()
  if (deployment === 'replicated') db.restartInSet()
  db.seen = seen
  expect(await new DurableWrites(db).send(db.write)).toBe(deployment)
  expect(db.questions).toBe(0)
})

test.each([['Unknown'], ['LoadBalancer']])('a driver that sees %s asks', async (type) => {
  const db = new FakeDb()
  db.seen = [type]
  expect(await new DurableWrites(db).send(db.write)).toBe('alone')
  expect(db.questions).toBe(1)
})

test('a server alone that the driver has lost, or sees in a replica set now, is asked again', async () => {
  const db = new FakeDb()
  const durable = new DurableWrites(db)
  expect(await durable.send(db.write)).toBe('alone')
  db.restartInSet()
  db.seen = ['Unknown']
  expect(await durable.send(db.write)).toBe('replicated')
  db.restartAlone()
  db.seen = ['Standalone']
  expect(await durable.send(db.write)).toBe('alone')
  db.restartInSet()
  db.seen = ['RSPrimary']
  expect(await durable.send(db.write)).toBe('replicated')
  db.seen = ['Unknown']
  expect(await durable.send(db.write)).toBe('replicated')
  expect(db.questions).toBe(4)
})

test('what a driver sees late is not believed, and not taken for the truth after that', async () => {
  const db = new FakeDb()
  db.seen = ['Standalone']
  db.restartInSet()
  const durable = new DurableWrites(db)
  await expect(durable.send(db.write)).rejects.toThrow('ran without a replica set and now runs in one')
  expect(await durable.send(db.write)).toBe('replicated')
  expect(await durable.send(db.write)).toBe('replicated')
})

test('a refusal is an answer, after which nobody asks', async () => {
  const db = new FakeDb()
  const durable = new DurableWrites(db)
  await durable.send(db.write)
  const refusal = Object.assign(new Error('taken'), { code: 241 })
  await expect(durable.send(() => Promise.reject(refusal))).rejects.toThrow('taken')
  await durable.send(db.write)
  expect(db.questions).toBe(1)
})

test('what the reply contradicts is not believed, in both directions, and is asked again', async () => {
  const db = new FakeDb()
  const durable = new DurableWrites(db)
  await durable.send(db.write)
  db.restartInSet()
  await expect(durable.send(db.write)).rejects.toThrow('ran without a replica set and now runs in one')
  expect(await durable.send(db.write)).toBe('replicated')
  db.restartAlone()
  await expect(durable.send(db.write)).rejects.toThrow('ran in a replica set and now runs without one')
  expect(await durable.send(db.write)).toBe('alone')
  expect(db.openSessions).toBe(0)
})

test('a replica set whose replies have no time is believed by its hello', async () => {
  const db = new FakeDb()
  db.hello = { setName: 'like MongoDB' }
  expect(await new DurableWrites(db).send(db.write)).toBe('replicated')
})

test('a failed write makes the next one ask', async () => {
  const db = new FakeDb()
  db.restartInSet()
  const durable = new DurableWrites(db)
  await durable.send(db.write)
  await expect(durable.send(() => Promise.reject(new Error('reset')))).rejects.toThrow('reset')
  db.restartAlone()
  expect(await durable.send(db.write)).toBe('alone')
})

test('a question that another request gave up is asked again, and one that came too late sends nothing', async () => {
  const db = new FakeDb()
  const durable = new DurableWrites(db)
  let giveUp!: (error: Error) => void
  db.delay = new Promise((_, reject) => (giveUp = reject))
  const first = durable.send(db.write)
  const second = durable.send(db.write)
  const late = new AbortController()
  const third = durable.send(db.write, { signal: late.signal })
  late.abort(new Error('late'))
  db.delay = Promise.resolve()
  giveUp(new Error('gave up'))
  await expect(first).rejects.toThrow('gave up')
  await expect(third).rejects.toThrow('late')
  expect(await second).toBe('alone')
  expect(db.questions).toBe(2)
})

test('a driver that cannot be asked: a replica set is assumed, in the session of the user if there is one', async () => {
  const durable = new DurableWrites(undefined)
  const session = {}
  expect(await durable.send(async (options) => options)).toEqual({ deployment: 'replicated', inSession: {} })
  expect(await durable.send(async (options) => options.inSession.session, { session })).toBe(session)
})
