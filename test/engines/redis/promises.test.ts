import { expect, test } from 'vitest'
import { promisesOf } from '../../../bench/promises.mjs'
import { startRedisNodes } from '../../../harness/servers/redis.ts'

/** Counted by async_hooks in a process of its own: exact, however busy the machine is. */
test.each([
  { size: 1, client: 'ioredis' },
  { size: 5, client: 'ioredis' },
  // On five nodes it makes 27: node-redis makes one for each command, and one more is needed to hear of it.
  { size: 1, client: 'node-redis' },
] as const)(
  'an uncontended section on $size nodes makes at most 12 promises with $client',
  async ({ size, client }) => {
    await using servers = await startRedisNodes(size)
    const ports = servers.nodes.map(({ port }) => port)
    const count = await promisesOf({ library: { name: 'ringfence', from: 'src' }, ports, client })
    expect(count).toBeGreaterThan(0)
    expect(count).toBeLessThanOrEqual(12)
  },
)
