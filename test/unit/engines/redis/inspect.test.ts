import { expect, test } from 'vitest'
import type { RedisClient } from '../../../../src/engines/redis/client.ts'
import { redis } from '../../../../src/engines/redis/index.ts'

/** A server that answers SCAN with these cursors, and has no keys. */
function scanning(cursorOf: (page: number) => string): RedisClient {
  let page = 0
  const run = (): Promise<unknown> => Promise.resolve([cursorOf(++page), []])
  return {
    driver: 'ioredis',
    identity: {},
    label: 'scan:1',
    cluster: false,
    unusable: () => undefined,
    run,
    runTogether: () => Promise.reject(new Error('not asked')),
    masters: () => Promise.resolve([{ label: 'scan:1', run }]),
    subscriber: () => undefined,
  }
}

test('a SCAN whose cursor does not move on is an error', async () => {
  const engine = redis(scanning(() => '7'))
  const looked = (async () => {
    for await (const { owner } of engine.inspect()) expect(owner).toBe('nobody')
  })()
  await expect(looked).rejects.toThrow('SCAN has no end: cursor 7')
})
