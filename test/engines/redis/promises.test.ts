import { expect, test } from 'vitest'
import { promisesOf } from '../../../bench/promises.mjs'
import { startRedisNodes } from '../../../harness/servers/redis.ts'

/** Counted by async_hooks in a process of its own: exact, however busy the machine is. The first process also founds the quorum. */
test.each([1, 5])(
  'an uncontended section on %i nodes makes at most 12 promises, also by `using`, and in the mean of the first 200 of a process',
  async (size) => {
    await using servers = await startRedisNodes(size)
    const ports = servers.nodes.map(({ port }) => port)
    for (const client of ['ioredis', 'node-redis'] as const) {
      const counts = await promisesOf({ library: { name: 'ringfence', from: 'src' }, ports, client })
      for (const [what, count] of Object.entries(counts)) {
        expect(count, `${client}: ${what}`).toBeGreaterThan(0)
        expect(count, `${client}: ${what}`).toBeLessThanOrEqual(12)
      }
    }
  },
)
