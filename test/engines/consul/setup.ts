import { onTestFinished } from 'vitest'
import { consul, type ConsulOptions } from '../../../src/engines/consul/index.ts'
import type { Engine } from '../../../src/engine.ts'
import type { ConsulServer } from '../../../harness/servers/consul.ts'

/** Closed when the test is over. The servers of the tests keep sessions from a second on. */
export function open(urls: string | string[], options: ConsulOptions = {}): Engine {
  const made = consul(urls, { sessionTtlMin: '1s', ...options })
  onTestFinished(() => made.close())
  return made
}

/** Every key there is, and every session's name. */
export async function contents(server: ConsulServer): Promise<{ keys: string[]; sessions: string[] }> {
  const [keys, sessions] = await Promise.all([
    server.call('GET', 'kv/?keys&separator='),
    server.call('GET', 'session/list'),
  ])
  return { keys: keys as string[], sessions: (sessions as { Name: string }[]).map(({ Name }) => Name) }
}
