import { EventEmitter, once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { addressOf, SINGLE } from './drivers-clients.ts'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'

let server: RedisServer

beforeAll(async () => {
  server = await startRedis()
})

afterAll(() => server.stop())

const kinds = Object.entries(SINGLE).filter(([name]) => !name.includes(','))

test('a server that takes connections but does not answer fails a subscription in time', async () => {
  const clients = await Promise.all(kinds.map(([, connect]) => connect(addressOf(server))))
  for (const { client } of clients) await client.run(['PING'])
  await server.freeze()
  const outcomes = await Promise.allSettled(
    clients.map(async ({ client }) => {
      const subscriber = client.subscriber(systemClock, systemRandom)
      try {
        await subscriber?.subscribe('a', () => undefined)
      } finally {
        await subscriber?.close()
      }
    }),
  )
  await server.thaw()
  expect(outcomes.map(({ status }) => status)).toEqual(kinds.map(() => 'rejected'))
  for (const { close } of clients) await close()
})

test.each(kinds)(
  '%s: a subscriber closed while it connects, or from within a message, is gone',
  async (_name, connect) => {
    const { client, close } = await connect(addressOf(server))
    const early = client.subscriber(systemClock, systemRandom)
    const subscribing = early?.subscribe('early', () => undefined)
    await early?.close()
    await expect(subscribing).rejects.toThrow(Error)
    const heard = new EventEmitter()
    const late = client.subscriber(systemClock, systemRandom)
    await late?.subscribe('late', () => {
      void late.close()
      heard.emit('message')
    })
    await Promise.all([once(heard, 'message'), client.run(['PUBLISH', 'late', 'x'])])
    await until(async () => (await server.cli('PUBSUB', 'CHANNELS')) === '', { what: 'nobody listens' })
    await close()
  },
)

test.each(kinds)('%s: subscribing anew at once after an end is heard', async (_name, connect) => {
  const { client, close } = await connect(addressOf(server))
  const subscriber = client.subscriber(systemClock, systemRandom)
  let heard = 0
  const rounds = Array.from({ length: 20 }, async () => {
    await subscriber?.subscribe('again', () => undefined)
    await subscriber?.unsubscribe('again')
  })
  await Promise.allSettled(rounds)
  void subscriber?.subscribe('again', () => undefined)
  void subscriber?.unsubscribe('again')
  await subscriber?.subscribe('again', () => heard++)
  await client.run(['PUBLISH', 'again', 'x'])
  await until(() => heard > 0, { what: 'the message was heard' })
  expect(heard).toBe(1)
  await subscriber?.close()
  await close()
})
