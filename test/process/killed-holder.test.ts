import { expect, test } from 'vitest'
import { isType, startSetup } from './setup.ts'

const TTL_MS = 6000

test.concurrent.each(['ioredis', 'node-redis'])(
  'after SIGKILL of the holder the next one gets in when the ttl is over, and not before; %s',
  async (driver) => {
    await using setup = await startSetup()
    const holder = setup.worker('holder.mjs', driver, { TTL_MS: String(TTL_MS) })
    const first = await holder.next(isType('acquired'), { withinMs: 40_000 })
    await holder.kill()
    expect(await holder.exited).toBe('SIGKILL')
    expect(await setup.locks.tryAcquire('order')).toBeNull()

    const askedAtMs = performance.now()
    const remaining = await Promise.all(setup.clients.map((client) => client.pttl('order')))
    const second = await setup.locks.acquire('order', { wait: '30s' })
    const waitedMs = performance.now() - askedAtMs
    // A quorum of three is free when the third of the five keys is gone. A hundredth is for clocks of different speed.
    const third = remaining.sort((a, b) => a - b)[2]!
    expect(third).toBeGreaterThan(0)
    expect(waitedMs).toBeGreaterThanOrEqual(third * 0.99 - 2)
    expect(second.token).toBeGreaterThan(BigInt(String(first['token'])))
  },
)
