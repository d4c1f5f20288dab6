import type { Fetch } from '../../../src/engines/etcd/index.ts'
import type { EtcdServer } from '../../../harness/servers/etcd.ts'

export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

/** Every key there is, and every lease. */
export async function contents(server: EtcdServer): Promise<{ keys: string[]; leases: unknown[] }> {
  const all = { key: base64('\0'), range_end: base64('\0'), keys_only: true }
  const { kvs = [] } = (await server.call('kv/range', all)) as { kvs?: { key: string }[] }
  const { leases = [] } = (await server.call('lease/leases', {})) as { leases?: unknown[] }
  return { keys: kvs.map(({ key }) => Buffer.from(key, 'base64').toString()), leases }
}

/** The platform's fetch, with a look at each request before it is sent. */
export function watchedFetch(look: (path: string, body: Record<string, never>) => void | Promise<void>): Fetch {
  return async (url, init) => {
    await look(new URL(url).pathname, JSON.parse(init.body ?? '{}') as Record<string, never>)
    return globalThis.fetch(url, init)
  }
}
