import { MongoClient, type ClientSession, type Collection, type Db, type Document } from 'mongodb'
import { isTaken } from '../../src/engines/mongodb/errors.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { ServerError, type Reply } from '../../sim/redis.ts'
import { NOT_UNDONE, type Courier } from '../courier.ts'
import type { Target } from '../target.ts'
import { ownersIn, seenBy, wordsOf } from '../words.ts'

const REQUEST_TIMEOUT_MS = 400
const WALL_MS = 1_800_000_000_000

/** Leases in MongoDB by its driver, on a server alone whose clock stands still between two requests. */
export async function mongodbTarget(): Promise<Target> {
  const server = await startMongodb({ clockShift: true })
  // The driver's own look at its server is in real time, and a busy machine is late.
  const client = new MongoClient(server.url, {
    serverMonitoringMode: 'poll',
    heartbeatFrequencyMS: 3_600_000,
    connectTimeoutMS: 60_000,
  })
  await client.connect()
  const db = client.db('app')
  const leases = db.collection('ringfence')
  return {
    name: 'mongodb',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false, sendsAgain: true },
    lateMs: 4 * REQUEST_TIMEOUT_MS,
    async begin() {
      await leases.deleteMany({})
      return WALL_MS
    },
    clock: (wallMs) => server.stopClock(wallMs),
    open: ({ courier, process, wrong }) =>
      mongodb(carried(db, courier, wrong), { clock: process, requestTimeout: REQUEST_TIMEOUT_MS }),
    async left() {
      const filter = { owner: { $ne: null }, $expr: { $gt: ['$until', '$$NOW'] } }
      const rows = await leases
        .find(filter, { projection: { owner: 1, left: { $subtract: ['$until', '$$NOW'] } } })
        .toArray()
      return rows.map(({ _id, owner, left }) => ({ resource: String(_id), owner: String(owner), leftMs: Number(left) }))
    },
    async [Symbol.asyncDispose]() {
      await client.close()
      await server.stop()
    },
  }
}

/** What the engine takes for a session of the driver. */
interface Session {
  operationTime?: unknown
  endSession(): Promise<void>
}

type Options = Document & { readonly session?: Session; readonly signal?: AbortSignal }
type Work = (options: object) => Promise<unknown>

function startSession(): Session {
  return { endSession: async () => undefined }
}

/** A database whose requests are carried. */
function carried(db: Db, courier: Courier, wrong: string | undefined): Db {
  const bug = CHANGES.find(({ name }) => name === wrong)
  const changed = <T>(what: T): T => (bug === undefined ? what : (JSON.parse(bug.put(JSON.stringify(what))) as T))
  /** Without the server's time limit, since its clock jumps. The driver's own session, once the request is on its way: the engine may have given up the one that it asked for by then. */
  const visit = async (
    work: Work,
    { session, signal: _signal, maxTimeMS: _most, ...options }: Options,
  ): Promise<unknown> => {
    const own: ClientSession = db.client.startSession()
    try {
      return await work({ ...options, session: own })
    } finally {
      if (session !== undefined) session.operationTime = own.operationTime
      await own.endSession()
    }
  }
  const send = (what: string, asked: unknown, options: Options, work: Work): Promise<unknown> => {
    const owners = ownersIn(JSON.stringify(asked, plain))
    const [owner = '', other = ''] = owners
    const words = what === 'handOver' ? [{ what, owner: other, former: owner }] : wordsOf(what, owners)
    const { signal } = options
    return courier.carry({
      words,
      visit: () => visit(work, options),
      // Reads; writes only to a server that is not alone.
      sendsAgain: what === 'look',
      replies: (answer) => words.map((one) => replyTo(what, one.owner, answer)),
      refusals: (error): Reply[] => words.map(() => (isTaken(error) ? [0, 'taken'] : new ServerError(String(error)))),
      broken: () => networkError(),
      ...(signal === undefined ? {} : { signal }),
    })
  }
  const collection = (name: string, how: object): unknown => {
    const real: Collection = db.collection(name, how)
    return {
      findOneAndUpdate: (filter: Document, update: Document[], options: Options) =>
        send(options['upsert'] === true ? 'acquire' : 'handOver', [filter, update], options, (given) =>
          real.findOneAndUpdate(filter, changed(update), given),
        ),
      updateOne: (filter: Document, update: Document[], options: Options) =>
        send(kindOf(update), [filter, update], options, (given) => real.updateOne(filter, changed(update), given)),
      updateMany: (filter: Document, update: Document[], options: Options) =>
        send(kindOf(update), [filter, update], options, (given) => real.updateMany(filter, update, given)),
      bulkWrite: (operations: Parameters<Collection['bulkWrite']>[0], options: Options) =>
        send(options['ordered'] === true ? 'acquire' : 'extend', operations, options, (given) =>
          real.bulkWrite(operations, given),
        ),
      find: (filter: Document, options: Options) => {
        let found: Promise<unknown> | undefined
        const next = async (): Promise<unknown> => {
          found ??= send('look', [], options, (given) => real.find(filter, given).toArray())
          return ((await found) as unknown[]).shift() ?? null
        }
        return { next, close: async () => undefined }
      },
      watch: () => {
        throw networkError()
      },
    }
  }
  const client = new Proxy(db.client, {
    get: (target, name) => (name === 'startSession' ? startSession : Reflect.get(target, name)),
  })
  const command = (asked: Document, options: Options): Promise<unknown> =>
    send('ask', [], options, (given) => db.command(asked, given))
  return { databaseName: db.databaseName, collection, client, command, admin: () => db.admin() } as unknown as Db
}

function plain(_name: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}

function networkError(): Error {
  return Object.assign(new Error('connection 7 to 127.0.0.1 closed'), { name: 'MongoNetworkError' })
}

function kindOf(update: unknown): string {
  const text = JSON.stringify(update, plain)
  if (text.includes('"owner":null')) return 'release'
  if (text.includes('"wanted":{"$add"')) return 'wait'
  return text.includes('$replaceWith') ? 'handOver' : 'extend'
}

function replyTo(what: string, owner: string, answer: unknown): Reply {
  if (what === 'acquire' || what === 'handOver') {
    const isCount = typeof answer === 'object' && answer !== null && 'matchedCount' in answer
    if (!isCount) return JSON.stringify(answer ?? null, plain).includes(owner) ? 1 : [0, 'held']
    return what === 'acquire' || Number(answer.matchedCount) > 0 ? 1 : [0]
  }
  return ((answer as { matchedCount?: number } | null)?.matchedCount ?? 1) > 0 ? 1 : [0]
}

/** Known bugs, as changes of an update, and what sees them. */
const CHANGES = [
  {
    name: 'a grant that does not look at the holder',
    seenBy: 'exclusion',
    put: (update: string) => update.replace('"$cond":[{"$gt":["$until","$$NOW"]}', '"$cond":[false'),
  },
  {
    name: 'a renewal for half of the time',
    seenBy: 'exclusion',
    put: (update: string) =>
      update.replace(
        /^(\[\{"\$set":\{"until":\{"\$add":\["\$\$NOW",)(\d+)/,
        (_, begin: string, ms: string) => begin + Number(ms) / 2,
      ),
  },
]
