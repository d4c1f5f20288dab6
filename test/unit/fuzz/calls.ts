import * as fc from 'fast-check'
import { expect } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { RingfenceError } from '../../../src/errors.ts'

const lease = { resources: ['a'], owner: 'me@here', ttlMs: 15_000, token: 5n }

/** All that is asked of an engine. */
export const CALLS: Readonly<Record<string, (engine: Engine) => Promise<unknown>>> = {
  acquire: (engine) => engine.acquire(lease),
  'acquire several': (engine) => engine.acquire({ ...lease, resources: ['a', 'b'] }),
  share: (engine) => engine.acquire({ ...lease, shared: true }),
  extend: (engine) => engine.extend([lease, { ...lease, resources: ['b'] }]),
  release: (engine) => engine.release(lease),
  inspect: async (engine) => {
    for await (const { owner } of engine.inspect('a')) expect(owner).toBeTypeOf('string')
  },
  'inspect all': async (engine) => {
    let count = 0
    for await (const { owner } of engine.inspect()) {
      expect(owner).toBeTypeOf('string')
      // Page after page may come.
      if (++count > 300) break
    }
  },
  check: (engine) => engine.check(15_000),
}

/** In the test run. The doctor measures round trips, and takes its time. */
export const runsOf = (call: string): number => (call === 'check' ? 6 : 100)

/** Calls the engine and closes it. Throws what is not an error of ours; answers the token of a lease. */
export async function tokenFrom(engine: Engine, call: string): Promise<bigint | undefined> {
  const [settled] = await Promise.allSettled([CALLS[call]!(engine)])
  await engine.close?.()
  if (settled.status === 'rejected') {
    if (!(settled.reason instanceof RingfenceError)) throw settled.reason
    return undefined
  }
  const { kind, token } = (settled.value ?? {}) as { kind?: string; token?: unknown }
  if (kind !== 'granted') return undefined
  expect(token).toBeTypeOf('bigint')
  return token as bigint
}

/** Values that an answer may have where something else is expected, nested by the names that answers have. */
export function anything(names: readonly string[], values: readonly unknown[]): fc.Arbitrary<unknown> {
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom<unknown>(
        null,
        undefined,
        '',
        '0',
        '1',
        '-1',
        1,
        0,
        -1,
        1e300,
        Number.NaN,
        true,
        false,
        ...values,
      ),
      fc.string({ maxLength: 12 }),
      fc.bigInt(),
      fc.uint8Array({ maxLength: 10 }).map((bytes) => Buffer.from(bytes)),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(fc.constantFrom(...names), tie('value'), { maxKeys: 6 }),
    ),
  }))
  return value
}

/** One answer after the other, from the beginning again when they are used up; an error is thrown by the driver. */
export function inTurn(answers: readonly unknown[]): () => Promise<unknown> {
  let asked = 0
  return async () => {
    const answer = answers[asked++ % answers.length]
    // A server may give page after page, without an end.
    if (asked > 300) throw new Error('enough')
    if (answer instanceof Error) throw answer
    return answer
  }
}

/** No lease comes out of nothing: the server has said its token, or the counter that an engine has chosen the next number after. */
export function expectSaid(answers: readonly unknown[], token: bigint | undefined): void {
  const text = JSON.stringify(answers, (_key, part: unknown) => (typeof part === 'bigint' ? String(part) : part))
  const isSaid =
    token === undefined || [token, token - 1n].some((number) => number === 0n || text.includes(String(number)))
  expect(isSaid, `the token ${token}`).toBe(true)
}
