import type { Target } from '../target.ts'
import { consulTarget } from './consul.ts'
import { etcdTarget } from './etcd.ts'
import { fileTarget } from './file.ts'
import { mariadbTarget } from './mariadb.ts'
import { mongodbTarget } from './mongodb.ts'
import { postgresAdvisoryTarget } from './postgres-advisory.ts'
import { postgresTarget } from './postgres.ts'
import { redisTarget, redlockTarget, valkeyTarget } from './redis.ts'
import { zookeeperTarget } from './zookeeper.ts'

/** The engines, each with a real server and real drivers. */
export const TARGETS: Readonly<Record<string, () => Promise<Target>>> = {
  postgres: postgresTarget,
  'postgres-advisory': postgresAdvisoryTarget,
  mariadb: mariadbTarget,
  mongodb: mongodbTarget,
  etcd: etcdTarget,
  consul: consulTarget,
  zookeeper: zookeeperTarget,
  file: fileTarget,
  redis: redisTarget,
  redlock: redlockTarget,
  valkey: valkeyTarget,
}
