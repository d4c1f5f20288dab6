import { RedlockSemaphore } from 'redis-semaphore'
import { expect, onTestFinished, test } from 'vitest'
import { redlock } from '../../../../src/engines/redis/index.ts'
import type { PermitLease } from '../../../../src/index.ts'
import { ioredis, locksOn, servers, settle } from './bench.ts'

test('each of three clients lacks another node: two permits have two holders, and three where votes are counted', async () => {
  const three = await servers(3)
  await settle(locksOn(redlock(three.map(ioredis))))
  /** What a client has that cannot reach one of the nodes. */
  const clientsWithout = (lacking: number) =>
    three.map((node, index) => {
      const client = ioredis(node)
      if (index === lacking) client.disconnect()
      return client
    })

  const theirs: boolean[] = []
  for (const lacking of [2, 0, 1]) {
    const options = { lockTimeout: 60_000, refreshInterval: 0, acquireTimeout: 1000, acquireAttemptsLimit: 3 }
    const semaphore = new RedlockSemaphore(clientsWithout(lacking), 'theirs', 2, options)
    theirs.push(await semaphore.tryAcquire())
    onTestFinished(() => semaphore.release())
  }
  expect(theirs).toEqual([true, true, true])

  const ours: (PermitLease | null)[] = []
  for (const lacking of [2, 0, 1]) {
    const { locks } = locksOn(redlock(clientsWithout(lacking)), { ttl: '60s' })
    ours.push(await locks.semaphore('ours', 2).tryAcquire())
  }
  expect(ours.map((lease) => lease?.held)).toEqual([true, true, undefined])
  expect(new Set(ours.map((lease) => lease?.permit)).size).toBe(3)
})
