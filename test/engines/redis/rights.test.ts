import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startRedisNodes } from '../../../harness/servers/redis.ts'
import type { Engine } from '../../../src/engine.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/locks.ts'

/** As docs/engines/redis.md asks for them. */
const RIGHTS = (
  '+evalsha +eval +get +set +time +info +script|load +hget +hgetall +hset +del +pexpire +pttl +zadd +zrem +zrangebyscore ' +
  '+zscore +zrange +publish +subscribe +scan ~lock:* ~ringfence:* &ringfence:freed:*'
).split(' ')

const ALL = ['lease', 'several', 'shared', 'inspect'] as const

/** What each of them is needed for; what is not named works without it. The others are for a quorum, or wake waiters. */
const NEEDED: Readonly<Record<string, readonly (keyof Outcome)[]>> = {
  '+evalsha': ALL,
  '+eval': ALL,
  '+get': ALL,
  '+set': ['lease', 'several', 'shared'],
  '+time': ALL,
  '+del': ['lease', 'several', 'shared'],
  '+pexpire': ['lease', 'several', 'shared'],
  '+pttl': ['inspect'],
  '+zadd': ['shared'],
  '+zrem': ['shared'],
  '+zrangebyscore': ['shared'],
  '+zscore': ['shared'],
  '+zrange': ['shared'],
  '+scan': ['inspect'],
  '~lock:*': ALL,
  '~ringfence:*': ALL,
}

/** By which a node of a quorum is let in to vote. */
const LETS_IN = ['+info', '+script|load', '+hget', '+hgetall', '+hset']

/** Those without which a node can't be asked whether it votes, so that nothing is seen either. */
const SEES = ['+info', '+hget', '+hgetall']
const UNSEEN = expect.any(Error) as unknown

interface Outcome {
  readonly lease: unknown
  readonly several: unknown
  readonly shared: unknown
  readonly inspect: unknown
}

/** How a call ended: 'done', or with what it rejected. */
async function ending(work: () => Promise<unknown>): Promise<unknown> {
  try {
    await work()
    return 'done'
  } catch (error) {
    return error
  }
}

/** What a user of the locks meets: the first error of a lease that is extended and released, however far it came. */
async function tried(engine: Engine): Promise<Outcome> {
  const locks = createLocks(engine, { ttl: '20s' })
  const lease = async (names: readonly string[], shared = false): Promise<void> => {
    const held = await locks.acquire([...names], { shared, wait: 0 })
    await held.extend('30s')
    expect(await held.release()).toBe(true)
  }
  const outcome = {
    lease: await ending(() => lease(['a'])),
    several: await ending(() => lease(['b', 'c'])),
    shared: await ending(() => lease(['d'], true)),
    inspect: await ending(async () => {
      for (const name of ['a', undefined])
        for await (const { owner } of engine.inspect(name)) expect(owner).toBeTypeOf('string')
    }),
  }
  await locks.close()
  return outcome
}

test.each([
  ['one server', 1],
  ['a quorum', 3],
])(
  'each right that is missing on %s is named by an error, and nothing else fails',
  { timeout: 120_000 },
  async (_what, size) => {
    const acl = RIGHTS.map(
      (right, index) => `u${index} on nopass ${RIGHTS.filter((other) => other !== right).join(' ')}`,
    )
    await using nodes = await startRedisNodes(size, { acl })
    const clientsOf = (index: number): Redis[] =>
      nodes.urls.map((url) =>
        new Redis(url.replace('//', `//u${index}@`), { enableReadyCheck: false }).on('error', () => undefined),
      )
    for (const [index, right] of RIGHTS.entries()) {
      await Promise.all(nodes.nodes.map((node) => node.cli('FLUSHDB')))
      const clients = clientsOf(index)
      const options = { prefix: 'lock:' }
      const outcome = await tried(size === 1 ? redis(clients[0]!, options) : redlock(clients, options))
      const letsIn = size > 1 && LETS_IN.includes(right)
      const named = expect.objectContaining({
        // A node may sit out by then, which is an error that passes.
        ...(letsIn ? {} : { transient: false }),
        message: expect.stringContaining(right.startsWith('~') ? '~ringfence:' : right) as string,
      }) as unknown
      const needed = letsIn ? ALL : (NEEDED[right] ?? [])
      const expected = {
        ...Object.fromEntries(ALL.map((part) => [part, needed.includes(part) ? named : 'done'])),
        ...(letsIn && { inspect: SEES.includes(right) ? UNSEEN : 'done' }),
      }
      expect([right, outcome]).toEqual([right, expected])
      for (const client of clients) client.disconnect()
    }
    // This user has all that a lease needs, but only for names that begin with lock:.
    const clients = clientsOf(RIGHTS.indexOf('+publish'))
    const { lease } = await tried(size === 1 ? redis(clients[0]!) : redlock(clients))
    expect(String(lease)).toMatch(/is the prefix option missing .* ACL SETUSER <user> ~<names>\* ~ringfence:\*/)
    for (const client of clients) client.disconnect()
  },
)
