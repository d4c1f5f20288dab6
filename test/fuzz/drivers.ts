import { Redis } from 'ioredis'
import { createPool as mariadbPool } from 'mariadb'
import { MongoClient } from 'mongodb'
import { createPool as mysqlPool } from 'mysql2/promise'
import zookeeperDriver from 'node-zookeeper-client'
import { Pool } from 'pg'
import { createClient } from 'redis'
import type { Clock } from '../../src/clock.ts'
import type { Engine } from '../../src/engine.ts'
import { mariadb } from '../../src/engines/mariadb/index.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { zookeeper, type ZookeeperDriver } from '../../src/engines/zookeeper/index.ts'
import { PROTOCOLS, type Protocol } from './protocols.ts'

interface Opened {
  readonly engine: Engine
  /** Closes the user's client, which need not end while its server is there. */
  readonly close: () => unknown
}

/** A real driver under our engine, as a user has it, with short time-outs. */
export interface Driver {
  readonly protocol: Protocol
  readonly open: (port: number, clock: Clock) => Opened
  /** Its packages, where they throw outside of every call: from the listener of a socket, where neither we nor a user can catch it. */
  readonly throws?: RegExp
  /** It makes a number of any characters that come before the end of a line. */
  readonly guessesNumbers?: boolean
}

const packages = (...names: readonly string[]): RegExp => new RegExp(`/node_modules/(${names.join('|')})/`)

const host = '127.0.0.1'
const requestTimeout = '60ms'
const ignore = (): void => undefined

export const DRIVERS: Readonly<Record<string, Driver>> = {
  ioredis: {
    protocol: PROTOCOLS.redis,
    throws: packages('ioredis'),
    guessesNumbers: true,
    open(port, clock) {
      const client = new Redis({ host, port, connectTimeout: 100 }).on('error', ignore)
      return { engine: redis(client, { requestTimeout, clock }), close: () => client.disconnect() }
    },
  },
  redis: {
    protocol: PROTOCOLS.redis,
    throws: packages('@redis/client'),
    guessesNumbers: true,
    open(port, clock) {
      const client = createClient({ socket: { host, port, connectTimeout: 100 } }).on('error', ignore)
      client.connect().catch(ignore)
      return { engine: redis(client, { requestTimeout, clock }), close: () => client.destroy() }
    },
  },
  pg: {
    protocol: PROTOCOLS.postgres,
    throws: packages('pg', 'pg-protocol', 'pg-pool'),
    open(port, clock) {
      const pool = new Pool({ host, port, user: 'u', password: 'p', database: 'd', connectionTimeoutMillis: 100 })
      pool.on('error', ignore)
      return { engine: postgres(pool, { requestTimeout, clock }), close: () => pool.end() }
    },
  },
  mariadb: {
    protocol: PROTOCOLS.mariadb,
    throws: packages('mariadb'),
    open(port, clock) {
      const pool = mariadbPool({
        host,
        port,
        user: 'u',
        password: 'p',
        database: 'd',
        connectTimeout: 100,
        acquireTimeout: 200,
        connectionLimit: 2,
      })
      return { engine: mariadb(pool, { requestTimeout, clock }), close: () => pool.end() }
    },
  },
  mysql2: {
    protocol: PROTOCOLS.mariadb,
    throws: packages('mysql2'),
    open(port, clock) {
      const pool = mysqlPool({ host, port, user: 'u', password: 'p', database: 'd', connectTimeout: 100 })
      return { engine: mariadb(pool, { requestTimeout, clock }), close: () => pool.end() }
    },
  },
  mongodb: {
    protocol: PROTOCOLS.mongodb,
    throws: packages('mongodb', 'bson'),
    open(port, clock) {
      const client = new MongoClient(`mongodb://${host}:${port}/app`, {
        directConnection: true,
        serverSelectionTimeoutMS: 100,
        connectTimeoutMS: 100,
        socketTimeoutMS: 200,
        maxPoolSize: 2,
      })
      return { engine: mongodb(client.db('app'), { requestTimeout, clock }), close: () => client.close() }
    },
  },
  // Throws too, but its client is our own, and so we can catch it.
  'node-zookeeper-client': {
    protocol: PROTOCOLS.zookeeper,
    open(port, clock) {
      const driver = zookeeperDriver as unknown as ZookeeperDriver
      return { engine: zookeeper(driver, `${host}:${port}`, { requestTimeout, clock, maxTtl: '1s' }), close: ignore }
    },
  },
}
