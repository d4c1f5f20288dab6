import type { Target } from '../target.ts'
import { consulTarget } from './consul.ts'
import { etcdTarget } from './etcd.ts'
import { fileTarget } from './file.ts'
import { mariadbTarget } from './mariadb.ts'
import { mongodbTarget } from './mongodb.ts'
import { postgresTarget } from './postgres.ts'
import { redisTarget, redlockTarget } from './redis.ts'

/** The engines, each with a real server and real drivers. */
export const TARGETS: Readonly<Record<string, () => Promise<Target>>> = {
  postgres: postgresTarget,
  mariadb: mariadbTarget,
  mongodb: mongodbTarget,
  etcd: etcdTarget,
  consul: consulTarget,
  file: fileTarget,
  redis: redisTarget,
  redlock: redlockTarget,
}
