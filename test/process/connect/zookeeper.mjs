import * as driver from 'node-zookeeper-client'
import { zookeeper } from '../../../dist/engines/zookeeper/index.cjs'

/** The engine of this process on the servers of RINGFENCE_SERVERS. */
export async function connect() {
  return zookeeper(driver, process.env.RINGFENCE_SERVERS, { maxTtl: Number(process.env.RINGFENCE_MAX_TTL_MS) })
}
