import { EventEmitter } from 'node:events'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import { CALLS, runsOf, tokenFrom } from './calls.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

type Done = (error: unknown, ...values: unknown[]) => void

interface Stat {
  readonly czxid: Buffer
}

/** What a server answers to a request, whichever it is. The driver reads the bytes, so that each has the type that it should have. */
interface Answer {
  readonly error: Error | null
  readonly stat: Stat
  readonly exists: boolean
  readonly data: Buffer | undefined
  readonly names: readonly string[]
  readonly acl: readonly object[]
  readonly results: readonly { readonly path?: string; readonly stat?: Stat }[]
}

/** A client that has a connection, whose server answers anything, one after the other and from the beginning again. */
function driverOf(answers: readonly Answer[]): never {
  let asked = 0
  const reply =
    (valuesOf: (answer: Answer) => readonly unknown[]) =>
    (...args: unknown[]): void => {
      const answer = answers[asked++ % answers.length]!
      const error = asked > 300 ? Object.assign(new Error('enough'), { code: -4 }) : answer.error
      setImmediate(() => (args.at(-1) as Done)(error, ...(error === null ? valuesOf(answer) : [])))
    }
  const createClient = (): object => {
    const client = new EventEmitter()
    const transaction: Record<string, unknown> = { commit: reply(({ results }) => [results]) }
    for (const step of ['create', 'setData', 'check', 'remove']) transaction[step] = () => transaction
    return Object.assign(client, {
      connect: () => void setImmediate(() => client.emit('connected')),
      close: () => void setImmediate(() => client.emit('disconnected')),
      getSessionTimeout: () => 40_000,
      addAuthInfo: () => undefined,
      setData: reply(({ stat }) => [stat]),
      remove: reply(() => []),
      exists: reply(({ exists, stat }) => [exists ? stat : null]),
      getData: reply(({ data, stat }) => [data, stat]),
      getChildren: reply(({ names, stat }) => [names, stat]),
      getACL: reply(({ acl, stat }) => [acl, stat]),
      transaction: () => transaction,
      connectionManager: { socket: { destroy: () => undefined }, pendingBuffer: null, setState: () => undefined },
    })
  }
  const rule = [{ permission: 31, id: { scheme: 'world', id: 'anyone' } }]
  return { createClient, ACL: { OPEN_ACL_UNSAFE: rule, CREATOR_ALL_ACL: rule } } as unknown as never
}

const place = fc.oneof(
  fc.constantFrom('me@here-0000000001', 'other@there-0000000000', 'lock-0000000000', 'x', '', '%', '-', '-0000000003'),
  fc.string({ maxLength: 12 }),
  fc.tuple(fc.string({ maxLength: 6 }), fc.nat(9_999_999_999)).map(([owner, number]) => `${owner}-${number}`),
)
const eight = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((number) => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64BE(number)
  return bytes
})
const stat = fc.record({ czxid: eight, ctime: eight, mtime: eight, version: fc.integer(), numChildren: fc.integer() })
const data = fc.oneof(
  fc.constantFrom(
    '{"ttlMs":5000}',
    '{"ttlMs":5000,"heldMs":0}',
    '{"ttlMs":1,"token":"x"}',
    '{"ttlMs":1e999}',
    '[',
    'null',
    '',
  ),
  fc.json({ maxDepth: 2 }),
  fc.string({ unit: 'binary', maxLength: 20 }),
)
const answer: fc.Arbitrary<Answer> = fc.record({
  error: fc.oneof(
    { weight: 3, arbitrary: fc.constant(null) },
    fc
      .oneof(fc.constantFrom(-4, -8, -101, -102, -103, -110, -111, -112, -114, -115), fc.integer())
      .map((code) => Object.assign(new Error('no'), { code })),
  ),
  stat,
  exists: fc.boolean(),
  data: fc.option(
    data.map((text) => Buffer.from(text, 'latin1')),
    { nil: undefined },
  ),
  names: fc.array(place, { maxLength: 3 }),
  acl: fc.array(
    fc.record({
      permission: fc.nat(40),
      id: fc.record({ scheme: fc.constantFrom('world', 'digest', 'x'), id: fc.string() }),
    }),
    { maxLength: 2 },
  ),
  results: fc.array(fc.record({ path: place.map((name) => `/ringfence/a/${name}`), stat }, { requiredKeys: [] }), {
    maxLength: 3,
  }),
})

/** The numbers of all znodes that were told of: a lease's token is one of them. */
const numbersIn = (answers: readonly Answer[]): bigint[] =>
  answers
    .flatMap((one) => [one.stat, ...one.results.flatMap((result) => result.stat ?? [])])
    .map(({ czxid }) => czxid.readBigInt64BE())

const calls = Object.keys(CALLS)

test.each(calls)(
  'whatever the servers answer, %s is an answer or an error of ours, and no lease comes out of nothing',
  { timeout: FUZZ_TIMEOUT_MS },
  async (call) => {
    const answers = fc.array(answer, { minLength: 1, maxLength: 5 })
    await always(answers, { runs: runsOf(call), part: 1 / calls.length }, async (given) => {
      const token = await tokenFrom(zookeeper(driverOf(given), 'zk:1', { requestTimeout: '200ms' }), call)
      expect(token === undefined || numbersIn(given).includes(token)).toBe(true)
    })
  },
)
