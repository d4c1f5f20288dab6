import { objectOrThrow, optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow, type Clock } from '../../clock.ts'
import { shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { driftOrThrow, LONGEST_TTL_MS, requestTimeoutOrThrow } from '../shared/limits.ts'
import { hasMethods, text } from '../shared/shape.ts'
import type { MongoDb } from './client.ts'
import { MongodbEngine } from './engine.ts'

export type { MongoChangeStream, MongoCollection, MongoCursor, MongoDb, MongoUpdate } from './client.ts'

/** Options of `mongodb`. */
export interface MongodbOptions {
  /** The collection of the leases, one document for each resource. Default 'ringfence'. Never delete a document: its counter is in it. */
  collection?: string
  /** How long a request may take, a majority's acknowledgement included. Default a sixth of the ttl, 250 ms (half of a shorter ttl) to 5 s. */
  requestTimeout?: Duration
  /** How much clocks may differ in speed, as a part of the ttl. Default 0.01: a hundredth, and 2 ms on top. */
  drift?: number
  clock?: Clock
}

/** Leases on MongoDB, tested on 8.2: `mongodb(client.db('app'))`, with a client of the official driver. */
export function mongodb(db: MongoDb, options: MongodbOptions = {}): Engine {
  dbOrThrow(db)
  optionsOrThrow(options, ['collection', 'requestTimeout', 'drift', 'clock'])
  const { collection = 'ringfence', requestTimeout, drift } = options
  return new MongodbEngine(db, {
    collection: collectionNameOrThrow(collection, db),
    requestTimeoutMs: requestTimeoutOrThrow(requestTimeout, TIMEOUT),
    limits: { maxTtlMs: LONGEST_TTL_MS, driftMs: driftOrThrow(drift) },
    clock: clockOrThrow(options.clock),
    canListen: poolSize(db) !== 1,
  })
}

/** A sixth of the ttl, so that a renewal, which is due after a third, can fail twice. 250 ms for a majority on a busy network. */
const TIMEOUT = { divisor: 6, leastMs: 250, mostMs: 5000 }

/** The longest name of database and collection together that the server allows. */
const LONGEST_NAMESPACE_BYTES = 255

function dbOrThrow(db: MongoDb): void {
  objectOrThrow(db, 'db')
  if (hasMethods(db, 'collection', 'command', 'admin')) return
  const isClient = hasMethods(db, 'db')
  const isCollection = text(db, 'collectionName') !== undefined
  const came = isClient
    ? 'a MongoClient'
    : isCollection
      ? 'a Collection; name it with the option collection'
      : shown(db)
  throw new TypeError(`db: expected a Db of the mongodb driver, as client.db('app') gives it, got ${came}`)
}

function collectionNameOrThrow(name: unknown, db: MongoDb): string {
  if (typeof name !== 'string') throw new TypeError(`collection: expected a string, got ${shown(name)}`)
  if (name === '' || /[$\0]|^system\.|^\.|\.$|\.\./.test(name)) {
    throw new RangeError(
      `collection: expected a name that MongoDB allows, got ${shown(name)}; without $, empty parts, and 'system.' in front`,
    )
  }
  if (Buffer.byteLength(`${db.databaseName}.${name}`) > LONGEST_NAMESPACE_BYTES) {
    throw new RangeError(
      `collection: expected at most ${LONGEST_NAMESPACE_BYTES} bytes together with '${db.databaseName}.', got ${shown(name)}; give it a shorter name`,
    )
  }
  return name
}

/** A change stream occupies a connection. In a pool of one connection, renewals would have to wait for it. */
function poolSize(db: object): unknown {
  const { client } = db as { client?: { options?: { maxPoolSize?: unknown } } }
  return client?.options?.maxPoolSize
}
