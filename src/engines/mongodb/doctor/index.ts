import type { Clock } from '../../../clock.ts'
import type { Finding, NodeState } from '../../../engine.ts'
import { findings } from '../../shared/findings.ts'
import { probed } from '../../shared/probe.ts'
import type { MongoCollection, MongoDb } from '../client.ts'
import { deploymentOf } from '../durable-writes.ts'
import { FREEING } from '../statements.ts'
import { durableWriteConcern, PLAIN, type RequestBounds } from '../steps.ts'
import { checkCollection } from './collection.ts'
import { DoctorCommands, type CommandResult } from './commands.ts'
import { checkDeployment, checkJournal, checkMembers } from './members.ts'
import { checkClock, checkVersion, checkWrites, type CheckedTtl } from './server.ts'
import { checkWakeups } from './wakeups.ts'

export interface MongodbCheck extends CheckedTtl {
  readonly db: MongoDb
  /** The name of the collection. */
  readonly collection: string
  readonly leases: MongoCollection
  /** Whether the engine would open a change stream at all. */
  readonly canListen: boolean
  readonly clock: Clock
}

const { reachable, unreachable } = findings('mongodb')

const UNREACHABLE_REMEDY =
  'See whether a primary runs and was elected, and whether address, port, TLS, firewall, username and password let ' +
  'this client in.'

/** A name with a control character: no resource has one. */
const OWN_DOCUMENT = '\u0000ringfence:doctor'

/**
 * The doctor: is this deployment fit to hold locks of this ttl? Never rejects, and returns in bounded time. Writes one document
 * of its own, because only a write that changes something waits for a majority that is there now.
 */
export async function checkMongodb(plan: MongodbCheck): Promise<readonly Finding[]> {
  const { db, collection, leases } = plan
  const commands = new DoctorCommands(plan.clock)
  const command = (document: object): Promise<CommandResult> =>
    commands.send((bounds) => db.command(document, { ...PLAIN, ...primary(bounds) }))
  const adminCommand = (document: object): Promise<CommandResult> =>
    commands.send((bounds) => db.admin().command(document, { ...PLAIN, ...primary(bounds) }))

  const hello = await command({ hello: 1 })
  if (hello.kind === 'error') return [unreachable(hello.error, UNREACHABLE_REMEDY)]
  const [build, config, status, indexes, collections, stream] = await Promise.all([
    command({ buildInfo: 1 }),
    adminCommand({ replSetGetConfig: 1 }),
    adminCommand({ replSetGetStatus: 1 }),
    command({ listIndexes: collection }),
    command({ listCollections: 1, filter: { name: collection } }),
    plan.canListen ? commands.send(() => openStream(leases)) : undefined,
  ])
  // Alone, because the time that it takes is measured.
  const writes = await commands.send((bounds) =>
    leases.updateOne({ _id: OWN_DOCUMENT }, [{ $set: { checked: '$$NOW' } }], {
      ...bounds,
      upsert: true,
      writeConcern: durableWriteConcern(deploymentOf(hello.value), bounds),
    }),
  )
  commands.close()
  return [
    reachable('Its client is connected and logged in.'),
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

/** How the primary answers now. */
export async function probeMongodb(db: MongoDb, clock: Clock): Promise<NodeState> {
  const commands = new DoctorCommands(clock)
  let run: string | undefined
  const state = await probed('mongodb', clock, async () => {
    const hello = await commands.send((bounds) => db.command({ hello: 1 }, { ...PLAIN, ...primary(bounds) }))
    if (hello.kind === 'error') throw hello.error
    const { localTime, topologyVersion } = hello.value as {
      localTime: unknown
      topologyVersion?: { processId?: { toHexString(): string } }
    }
    run = topologyVersion?.processId?.toHexString()
    return localTime instanceof Date ? localTime.getTime() : undefined
  })
  commands.close()
  return run === undefined ? state : { ...state, run }
}

function primary({ signal }: RequestBounds): object {
  return { readPreference: 'primary', signal }
}

/** Opens a change stream as the engine does, and closes it again. */
async function openStream(leases: MongoCollection): Promise<object> {
  const stream = leases.watch(FREEING, { maxAwaitTimeMS: 1, readConcern: { level: 'majority' } })
  try {
    await stream.tryNext()
    return {}
  } finally {
    stream.close().catch(() => undefined)
  }
}
