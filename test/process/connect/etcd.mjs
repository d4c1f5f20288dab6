import { etcd } from '../../../dist/engines/etcd/index.cjs'

/** The engine of this process on the members of RINGFENCE_URLS. */
export async function connect() {
  return etcd(process.env.RINGFENCE_URLS.split(','))
}
