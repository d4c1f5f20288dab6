import { postgres, recipes } from './recipes.mjs'

const { redis, valkey, mariadb, etcd, zookeeper } = recipes

/** Stands in for Redis as well as for itself. */
const forRedis = {
  ...valkey,
  bin: { ...valkey.bin, 'redis-server': valkey.bin['valkey-server'], 'redis-cli': valkey.bin['valkey-cli'] },
}

/**
 * Other versions of the servers than `npm test` runs on, each from the Debian suite that has it. What suites in the making
 * have moves on: the name says the major version, the fetched server its whole one.
 */
export const versions = {
  // Too old for the engine, which must say so.
  'redis-6': { ...redis, bin: { 'redis-server': redis.bin['redis-server'] }, suite: 'bullseye' },
  'redis-8': { ...redis, suite: 'trixie' },
  'valkey-8': { ...forRedis, suite: 'trixie' },
  'valkey-9': { ...forRedis, suite: 'forky' },
  'postgres-13': { ...postgres(13), suite: 'bullseye' },
  'postgres-17': { ...postgres(17), suite: 'trixie' },
  'postgres-18': { ...postgres(18), suite: 'forky' },
  'mariadb-11': { ...mariadb, suite: 'trixie' },
  'etcd-3.5': { ...etcd, suite: 'trixie' },
  'zookeeper-3.9': { ...zookeeper, suite: 'trixie' },
  'mysql-9': {
    packages: ['mysql-server-core', 'mysql-client-core'],
    bin: { mysqld: 'usr/sbin/mysqld', mysql: 'usr/bin/mysql' },
    version: ['mysqld', '--version'],
    suite: 'sid',
  },
}

/** Those of them that `npm test` needs: it runs conformance cases on the newest, and is refused on Redis 6. */
export const alsoUsual = ['redis-6', 'redis-8', 'valkey-9', 'postgres-18', 'etcd-3.5', 'zookeeper-3.9']
