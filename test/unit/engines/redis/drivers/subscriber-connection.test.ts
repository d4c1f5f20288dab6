import { expect, test } from 'vitest'
import { WatchedConnection } from '../../../../../src/engines/redis/drivers/subscriber-connection.ts'
import { ManualClock } from '../../../../../src/testing/manual-clock.ts'

test('a connection that was closed while it came up is not asked for a subscription', async () => {
  const asked: string[] = []
  const connection = new WatchedConnection(
    new ManualClock(),
    () => ({
      ready: Promise.resolve(),
      subscribe: async (channel) => void asked.push(channel),
      unsubscribe: async () => undefined,
      prove: async () => undefined,
      close: () => undefined,
    }),
    { isUsed: () => false, gone: () => undefined },
  )
  const subscribing = connection.subscribe('freed')
  connection.close()
  await expect(subscribing).rejects.toThrow('the connection for subscriptions was lost')
  expect(asked).toEqual([])
})
