import { consul } from '../../../dist/engines/consul/index.cjs'

/** The engine of this process on the servers of RINGFENCE_URLS. */
export async function connect() {
  return consul(process.env.RINGFENCE_URLS.split(','), { sessionTtlMin: '1s' })
}
