import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { RedisClient } from '../../../src/engines/redis/client.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { CALLS, runsOf, tokenFrom } from './calls.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

/** What a driver may make of the bytes of a server: mostly what looks like an answer of a step. */
const { reply } = fc.letrec<{ reply: unknown }>((tie) => ({
  reply: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.integer({ min: -3, max: 3 }),
    fc.constantFrom<unknown>(
      null,
      undefined,
      '',
      '0',
      '1',
      '-1',
      'OK',
      'nan',
      '+5',
      'offered',
      'behind',
      'clock',
      1e300,
      0.5,
      true,
    ),
    fc.string({ maxLength: 40 }),
    fc.bigInt(),
    fc.constant('x'.repeat(100_000)),
    fc.uint8Array({ maxLength: 20 }),
    fc.constant(new Error('ERR nonsense')),
    fc.array(tie('reply'), { maxLength: 7 }),
    fc.dictionary(fc.string({ maxLength: 5 }), tie('reply'), { maxKeys: 3 }),
  ),
}))

/** In the order of the commands, from the beginning again when they are used up. */
function clientOf(replies: readonly unknown[], asked: unknown[]): RedisClient {
  const next = (): Promise<unknown> => {
    const answer = replies[asked.length % replies.length]
    asked.push(answer)
    // A server may give page after page of SCAN, without an end.
    if (asked.length > 300) return Promise.reject(new Error('enough'))
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer)
  }
  return {
    driver: 'ioredis',
    identity: {},
    label: 'fuzz:1',
    cluster: false,
    unusable: () => undefined,
    run: next,
    runTogether: (commands) => Promise.all(commands.map(next)),
    masters: () => Promise.resolve([{ label: 'fuzz:1', run: next }]),
    subscriber: () => undefined,
  }
}

/** What was found once, the smallest of each. */
const FOUND: Readonly<Record<string, readonly unknown[][]>> = {
  // A token out of a text that is no number as Lua writes it.
  share: [
    [' 1', 0],
    ['01', 0],
  ],
  // No rows for the resources that were asked for.
  inspect: [[[], 0]],
  // A page of SCAN that is none.
  'inspect all': [['=5', 0]],
}

/** As the acquire script says that the lock is ours: a token, and nothing beside it. */
const couldGrant = (answer: unknown): boolean => !Array.isArray(answer) && /^\+?[1-9]\d*$/.test(String(answer))

const calls = Object.keys(CALLS)

test.each(calls)(
  'whatever a server answers, %s is an answer or an error of ours, and no lease comes out of nothing',
  { timeout: FUZZ_TIMEOUT_MS },
  async (call) => {
    const replies = fc.array(reply, { minLength: 1, maxLength: 4 })
    const extent = { runs: runsOf(call), part: 1 / calls.length, examples: FOUND[call] ?? [] }
    await always(replies, extent, async (given) => {
      const asked: unknown[] = []
      const token = await tokenFrom(redis(clientOf(given, asked), { requestTimeout: '200ms' }), call)
      expect(token === undefined || asked.some(couldGrant)).toBe(true)
    })
  },
)
