// What `npm run test:versions` runs: servers in the versions that Debian has, and drivers at both ends of the ranges in
// package.json.

const redis = [
  'engines/redis/conformance',
  'engines/redis/conformance-groups',
  'engines/redis/trials',
  'engines/redis/drivers',
  'engines/redis/doctor',
  'guards/redis',
  'guards/once-redis',
]
/** Of a server only: which users and files it has is not about a driver. */
const redisServer = [...redis, 'engines/redis/replay', 'engines/redis/rights']
const postgres = [
  'engines/postgres/conformance',
  'engines/postgres/trials',
  'engines/postgres/table',
  'engines/postgres/doctor',
  'guards/postgres',
  'guards/once-sql',
]
const mariadb = [
  'engines/mariadb/conformance',
  'engines/mariadb/trials',
  'engines/mariadb/table',
  'engines/mariadb/doctor',
  'guards/mariadb',
  'guards/once-sql',
]
const etcd = ['engines/etcd/conformance', 'engines/etcd/trials', 'engines/etcd/cluster', 'engines/etcd/doctor']
const zookeeper = [
  'engines/zookeeper/conformance',
  'engines/zookeeper/trials',
  'engines/zookeeper/ensemble',
  'engines/zookeeper/doctor',
]
const mongodb = [
  'engines/mongodb/conformance',
  'engines/mongodb/trials',
  'engines/mongodb/doctor',
  'guards/mongodb',
  'guards/once-mongodb',
]
const consul = ['engines/consul/conformance', 'engines/consul/trials', 'engines/consul/doctor']
const file = ['engines/file/conformance', 'engines/file/trials']
const otel = ['otel/metrics', 'otel/spans']

/**
 * `use` has the server of `npm run servers` by the program that the tests ask for. Without it, the tests run on what
 * `npm test` runs on: of that the table has the series, because Debian's updates change the rest. A server that
 * is `refused` is too old, and its tests say that the engine says so.
 */
export const servers = [
  { ...usualServer('Redis', 'redis-6', '6.0', ['engines/redis/too-old']), refused: true },
  usualServer('Redis', 'redis', '7.0', redisServer),
  server('Redis', 'redis-8', { redis: 'redis-8' }, redisServer),
  server('Valkey', 'valkey-8', { redis: 'valkey-8', valkey: 'valkey-8' }, redisServer),
  server('Valkey', 'valkey-9', { redis: 'valkey-9', valkey: 'valkey-9' }, redisServer),
  server('PostgreSQL', 'postgres-13', { postgres: 'postgres-13' }, postgres),
  usualServer('PostgreSQL', 'postgres', '15', postgres),
  server('PostgreSQL', 'postgres-17', { postgres: 'postgres-17' }, postgres),
  server('PostgreSQL', 'postgres-18', { postgres: 'postgres-18' }, postgres),
  usualServer('MariaDB', 'mariadb', '10.11', mariadb),
  server('MariaDB', 'mariadb-11', { mariadb: 'mariadb-11' }, mariadb),
  server('MySQL', 'mysql-9', { mariadb: 'mysql-9' }, mariadb),
  usualServer('MongoDB', 'mongodb', '8.2', mongodb),
  usualServer('etcd', 'etcd', '3.4', etcd),
  server('etcd', 'etcd-3.5', { etcd: 'etcd-3.5' }, etcd),
  usualServer('ZooKeeper', 'zookeeper', '3.8', zookeeper),
  server('ZooKeeper', 'zookeeper-3.9', { zookeeper: 'zookeeper-3.9' }, zookeeper),
  usualServer('Consul', 'consul', '1.8.7', consul),
]

/** The lowest version that the range in package.json allows, and the newest that there is. */
export const drivers = [
  ...bothEnds('ioredis', ['4.31.0', '6.0.0'], redis),
  ...bothEnds('iovalkey', ['0.3.1', '0.4.0'], redis),
  ...bothEnds('redis', ['5.0.0', '6.3.1'], redis),
  ...bothEnds('@valkey/valkey-glide', ['2.0.1', '2.5.2'], redis),
  ...bothEnds('pg', ['8.0.3', '8.23.1'], postgres),
  ...bothEnds('postgres', ['3.4.0', '3.4.9'], postgres),
  ...bothEnds('@electric-sql/pglite', ['0.2.0', '0.5.16'], postgres),
  ...bothEnds('mariadb', ['3.0.0', '3.5.4'], mariadb),
  ...bothEnds('mysql2', ['3.0.0', '3.24.5'], mariadb),
  ...bothEnds('mongodb', ['6.0.0', '7.8.0'], mongodb),
  ...bothEnds('node-zookeeper-client', ['1.1.0', '1.1.3'], zookeeper),
  ...bothEnds('libsql', ['0.5.1', '0.5.29'], file),
  ...bothEnds('@opentelemetry/api', ['1.9.0', '1.10.0'], otel),
]

/** What is too large to be a dependency of the tests: `npm test` does not have it. */
export const frameworks = [
  {
    id: 'next',
    product: 'Next.js',
    driver: 'next',
    version: '16.4.6',
    beside: ['react@19.3.1', 'react-dom@19.3.1', 'ioredis@6.0.0'],
    variable: 'RINGFENCE_NEXT',
    tests: ['frameworks-next'],
  },
]

/** Older commits of ringfence, beside which this one is run. Their results are on the page about upgrades. */
export const olds = [{ id: 'ringfence@d505523', commit: 'd505523' }]

function server(product, name, use, tests) {
  return { id: name, product, server: name, use, tests }
}

function usualServer(product, name, version, tests) {
  return { ...server(product, name, {}, tests), version }
}

function bothEnds(driver, versions, tests) {
  return versions.map((version) => ({ id: `${driver}@${version}`, driver, version, tests }))
}
