import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { startSentinel, type SentinelSetup } from '../../../harness/servers/sentinel.ts'
import { until } from '../../../harness/until.ts'
import { SENTINEL, type Connected } from './drivers-clients.ts'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'

let setup: SentinelSetup

beforeAll(async () => {
  setup = await startSentinel()
})

afterAll(() => setup.stop())

describe.each(Object.entries(SENTINEL))('%s', (_name, connect) => {
  let connected: Connected

  beforeEach(async () => {
    connected = await connect(setup.name, setup.sentinels)
  })

  afterEach(() => connected.close())

  test('WAIT counts the replicas that have the write sent before it', async () => {
    const commands = [
      ['SET', 'key', 'v'],
      ['WAIT', '2', '20000'],
    ]
    expect(await connected.client.runTogether(commands, 'key')).toEqual(['OK', 2])
    expect(await connected.client.run(['GET', 'key'], 'key')).toBe('v')
  })

  test('commands sent together use one connection while others are busy', async () => {
    const { client } = connected
    const others = Array.from({ length: 50 }, () => client.run(['PING']))
    const ids = await Promise.all(
      Array.from({ length: 10 }, () => client.runTogether([['CLIENT', 'ID'], ['PING'], ['CLIENT', 'ID']], 'key')),
    )
    expect(ids.every(([first, , last]) => typeof first === 'number' && first === last)).toBe(true)
    await Promise.all(others)
  })

  test('a closed client says so', async () => {
    await connected.client.run(['PING'])
    expect(connected.client.unusable()).toBeUndefined()
    expect(connected.client.label).toMatch(/^sentinel\((ringfence|127\.0\.0\.1:\d+)\)$/)
    await connected.close()
    await until(() => connected.client.unusable(), { what: 'it says so' })
    expect(connected.client.unusable()).toContain('closed')
  })
})

test('after a failover every client writes to the new master, and its subscriptions are there with a gap told', async () => {
  const kinds = await Promise.all(
    Object.entries(SENTINEL).map(async ([name, connect]) => {
      const connected = await connect(setup.name, setup.sentinels)
      const seen = { name, heard: 0, gaps: 0 }
      const subscriber = connected.client.subscriber(systemClock, systemRandom)
      subscriber?.onGap(() => seen.gaps++)
      await subscriber?.subscribe('channel', () => seen.heard++)
      return { connected, subscriber, seen }
    }),
  )
  await setup.newPrimary(await setup.killPrimary())
  await until(() => kinds.every(({ seen }) => seen.gaps > 0), { what: 'all were told of the gap', withinMs: 20_000 })
  // Told again and again: sentinels in a hurry sometimes promote both replicas, one after the other.
  const haveHeard = async (): Promise<boolean> => {
    await (await setup.primary()).cli('PUBLISH', 'channel', 'x')
    return kinds.every(({ seen }) => seen.heard > 0)
  }
  await until(haveHeard, { what: 'all heard the new master', withinMs: 20_000, everyMs: 50 })
  for (const { connected, subscriber } of kinds) {
    const isBack = async (): Promise<boolean> => {
      const [, port] = (await connected.client.run(['CONFIG', 'GET', 'port'])) as string[]
      return port === String((await setup.primary()).port)
    }
    await until(isBack, { what: 'the client writes to the new master', withinMs: 20_000 })
    await subscriber?.close()
    await connected.close()
  }
})

test('ioredis leaves a frozen master for the new one if it is told to look for failovers', async () => {
  const client = new Redis({ name: setup.name, sentinels: [...setup.sentinels], failoverDetector: true })
  const locks = createLocks(redis(client.on('error', () => undefined)))
  await locks.using('a', {}, () => undefined)
  const frozen = await setup.primary()
  await frozen.freeze()
  const lease = await until(() => locks.tryAcquire('b'), { what: 'the new master grants', withinMs: 20_000 })
  expect(lease.held).toBe(true)
  await locks.close()
  client.disconnect()
  await frozen.thaw()
})
