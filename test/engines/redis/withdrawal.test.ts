import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { redlock } from '../../../src/engines/redis/index.ts'
import { QuorumError } from '../../../src/errors.ts'
import { createLocks } from '../../../src/locks.ts'
import { startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'

async function published(node: RedisServer): Promise<number> {
  return Number(/cmdstat_publish:calls=(\d+)/.exec(await node.cli('INFO', 'commandstats'))?.[1] ?? 0)
}

test('an attempt without a quorum gives back what it was granted, and wakes nobody: all of them would try again at once', async () => {
  const { nodes, stop } = await startRedisNodes(3)
  const clients = nodes.map(({ host, port }) =>
    new Redis({ host, port, maxRetriesPerRequest: 0 }).on('error', () => undefined),
  )
  const locks = createLocks(redlock(clients))
  try {
    await (await locks.acquire('a')).release()
    const node = nodes[0]!
    expect(await published(node)).toBe(1)
    for (const other of nodes.slice(1)) await other.stop()
    await expect(locks.tryAcquire('b')).rejects.toBeInstanceOf(QuorumError)
    expect(await node.cli('EXISTS', 'b')).toBe('0')
    expect(await node.cli('EXISTS', 'ringfence:fence:{b}')).toBe('1')
    expect(await published(node)).toBe(1)
  } finally {
    await locks.close()
    for (const client of clients) client.disconnect()
    await stop()
  }
})
