import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Finding } from '../../engine.ts'
import type { MongoCollection, MongoDb } from './client.ts'
import { checkClock, checkVersion, checkWrites } from './doctor/server.ts'
import { checkCollection } from './doctor/collection.ts'
import { checkDeployment, checkJournal, checkMembers } from './doctor/members.ts'
import { checkWakeups } from './doctor/wakeups.ts'
import { FREEING } from './documents.ts'
import { PLAIN, writeConcern } from './leases.ts'
import { asError, within, type Bounds } from './requests.ts'

export interface CheckPlan {
  readonly db: MongoDb
  /** Its name. */
  readonly collection: string
  readonly leases: MongoCollection
  /** Whether the engine would open a change stream at all. */
  readonly canListen: boolean
  readonly clock: Clock
  readonly ttlMs: number
  /** How long a request for such a lease may take. */
  readonly timeoutMs: number
}

/** What a server answers, or why not. */
export type Reply =
  | {
      readonly kind: 'reply'
      readonly value: Record<string, unknown>
      readonly tookMs: number
      readonly wallMs: number
    }
  | { readonly kind: 'error'; readonly error: Error }

/** A new connection may have to be made in it, and a primary be found. */
const PATIENCE_MS = 3000

/** A name with a control character, which no resource has. */
const OWN_DOCUMENT = '\u0000ringfence:doctor'

/**
 * The doctor: is this deployment fit to hold locks of such a ttl? Always comes back. Writes one document of its own, for
 * only a write that changes something waits for a majority that is there now.
 */
export async function checkMongodb(plan: CheckPlan): Promise<readonly Finding[]> {
  const { db, collection, leases } = plan
  const deadlines = new Deadlines(plan.clock)
  const ask = (send: (bounds: Bounds) => Promise<unknown>): Promise<Reply> => reply(plan.clock, deadlines, send)
  const command = (document: object): Promise<Reply> =>
    ask((bounds) => db.command(document, { ...PLAIN, ...primary(bounds) }))
  const adminCommand = (document: object): Promise<Reply> =>
    ask((bounds) => db.admin().command(document, { ...PLAIN, ...primary(bounds) }))

  const hello = await command({ hello: 1 })
  if (hello.kind === 'error') return [unreachable(hello.error)]
  const [build, config, status, indexes, collections, stream] = await Promise.all([
    command({ buildInfo: 1 }),
    adminCommand({ replSetGetConfig: 1 }),
    adminCommand({ replSetGetStatus: 1 }),
    command({ listIndexes: collection }),
    command({ listCollections: 1, filter: { name: collection } }),
    plan.canListen ? ask(() => openStream(leases)) : undefined,
  ])
  // By itself: the time that it takes is measured.
  const writes = await ask((bounds) =>
    leases.updateOne({ _id: OWN_DOCUMENT }, [{ $set: { checked: '$$NOW' } }], {
      ...bounds,
      upsert: true,
      writeConcern: writeConcern('majority', bounds),
    }),
  )
  deadlines.close()
  return [
    { id: 'mongodb/reachable', severity: 'ok', found: 'answers', meaning: 'Its client is connected and logged in.' },
    checkVersion(build),
    checkDeployment(hello.value),
    ...checkMembers(hello.value, status),
    ...checkJournal(hello.value, config),
    checkWrites(writes, plan),
    checkWakeups(stream),
    ...checkCollection(plan.collection, collections, indexes),
    checkClock(hello, plan),
  ]
}

function primary({ signal }: Bounds): object {
  return { readPreference: 'primary', signal }
}

async function reply(clock: Clock, deadlines: Deadlines, send: (bounds: Bounds) => Promise<unknown>): Promise<Reply> {
  const began = clock.monotonicMs()
  try {
    const value = (await within(deadlines, PATIENCE_MS, send)) as Record<string, unknown>
    return { kind: 'reply', value, tookMs: clock.monotonicMs() - began, wallMs: clock.wallMs() }
  } catch (error) {
    return { kind: 'error', error: asError(error) }
  }
}

/** As the engine would, for a moment. */
async function openStream(leases: MongoCollection): Promise<object> {
  const stream = leases.watch(FREEING, { maxAwaitTimeMS: 1, readConcern: { level: 'majority' } })
  try {
    await stream.tryNext()
    return {}
  } finally {
    stream.close().catch(() => undefined)
  }
}

function unreachable(error: Error): Finding {
  return {
    id: 'mongodb/reachable',
    severity: 'critical',
    found: error.message,
    meaning: 'No lease can be granted or renewed.',
    remedy:
      'See whether a primary runs and was elected, and whether address, port, TLS, firewall, username and password let ' +
      'this client in.',
  }
}
