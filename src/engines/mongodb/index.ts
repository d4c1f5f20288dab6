import { objectOrThrow, optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import type { MongoDb } from './client.ts'
import { MongodbEngine } from './engine.ts'

export type { MongoChangeStream, MongoCollection, MongoCursor, MongoDb } from './client.ts'

export interface MongodbOptions {
  /** Where the leases are, one document a resource. Default 'ringfence'. Never delete a document: its counter is in it. */
  collection?: string
  /** How long a request may take, a majority's acknowledgement included. Default a sixth of the ttl, 250 ms (half of a shorter ttl) to 5 s. */
  timeout?: Duration
  /** How much clocks may differ in speed, as a part of the ttl. Default 0.01: a hundredth, and 2 ms on top. */
  drift?: number
  clock?: Clock
}

/** Leases on MongoDB 4.4 or newer: `mongodb(client.db('app'))`, with a client of the official driver. */
export function mongodb(db: MongoDb, options: MongodbOptions = {}): Engine {
  dbOrThrow(db)
  optionsOrThrow(options, ['collection', 'timeout', 'drift', 'clock'])
  const { collection = 'ringfence', timeout, drift = 0.01, clock = systemClock } = options
  if (typeof drift !== 'number' || !(drift >= 0 && drift <= 0.5)) {
    throw new RangeError(`drift: expected a part of the ttl from 0 to 0.5, got ${shown(drift)}`)
  }
  return new MongodbEngine(db, {
    collection: collectionNameOrThrow(collection, db),
    timeoutMs: timeout === undefined ? undefined : durationMs(timeout, 'timeout', { minMs: 1, maxMs: 60_000 }),
    limits: { maxTtlMs: LONGEST_TTL_MS, driftMs: (ttlMs) => Math.ceil(ttlMs * drift) + 2 },
    clock,
    canListen: poolSize(db) !== 1,
  })
}

/** A year: nobody waits for a lock that long. */
const LONGEST_TTL_MS = 365 * 86_400_000

/** The server's bound, in bytes, on the names of database and collection together. */
const LONGEST_NAMESPACE_BYTES = 255

function dbOrThrow(db: MongoDb): void {
  objectOrThrow(db, 'db')
  if (['collection', 'command', 'admin'].every((method) => typeof Reflect.get(db, method) === 'function')) return
  const isClient = typeof Reflect.get(db, 'db') === 'function'
  const isCollection = typeof Reflect.get(db, 'collectionName') === 'string'
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
    throw new RangeError(`collection: expected a name that MongoDB allows, got ${shown(name)}`)
  }
  if (Buffer.byteLength(`${db.databaseName}.${name}`) > LONGEST_NAMESPACE_BYTES) {
    throw new RangeError(
      `collection: expected at most ${LONGEST_NAMESPACE_BYTES} bytes together with '${db.databaseName}.', got ${shown(name)}`,
    )
  }
  return name
}

/** A change stream occupies a connection. Of a pool of one, it would keep renewals waiting. */
function poolSize(db: object): unknown {
  const { client } = db as { client?: { options?: { maxPoolSize?: unknown } } }
  return client?.options?.maxPoolSize
}
