import { EventEmitter } from 'node:events'
import * as fc from 'fast-check'
import { test } from 'vitest'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'
import { anything, CALLS, expectSaid, inTurn, runsOf, tokenFrom } from './calls.ts'

/** A database whose driver answers anything to everything. */
function databaseOf(next: () => Promise<unknown>): never {
  // Only a search finds nothing.
  const reply = async (): Promise<unknown> => {
    const given = await next()
    return typeof given === 'object' && given !== null ? given : {}
  }
  const cursor = { next, close: async () => undefined }
  const stream = (): object =>
    Object.assign(new EventEmitter(), { closed: false, tryNext: next, close: async () => undefined })
  const collection = {
    findOneAndUpdate: next,
    updateOne: reply,
    updateMany: reply,
    bulkWrite: reply,
    find: () => cursor,
    watch: stream,
  }
  const database = {
    databaseName: 'app',
    collection: () => collection,
    command: reply,
    admin: () => ({ command: reply }),
  }
  return database as unknown as never
}

const NAMES = [
  '_id',
  'owner',
  'token',
  'leftMs',
  'heldMs',
  'readers',
  'wantedMs',
  'now',
  'since',
  'until',
  'matchedCount',
]
  .concat(['ok', 'setName', 'hosts', 'primary', 'members', 'name', 'version', 'cursor', 'firstBatch', 'users', 'roles'])
  .concat(['authInfo', 'authenticatedUsers', 'defaultWriteConcern', 'localTime', 'isWritablePrimary', 'set', 'health'])
const VALUES = ['a', 'me@here', ' readers', new Date(0), new Date(Number.NaN), 5000, 1_767_225_600_000_000n]
const value = anything(NAMES, VALUES)
const token = fc.oneof(fc.bigInt({ min: 1n, max: 2n ** 63n }), fc.integer(), value)
const owner = fc.oneof({ weight: 4, arbitrary: fc.constant('me@here') }, value)
const document = fc.record(
  {
    _id: fc.constantFrom('a', 'b'),
    owner,
    token,
    leftMs: value,
    heldMs: value,
    readers: value,
    wantedMs: value,
    now: value,
  },
  { requiredKeys: [] },
)
const answer = fc.oneof(
  { weight: 3, arbitrary: document },
  fc.record({ matchedCount: fc.oneof(fc.integer({ min: -1, max: 3 }), value) }),
  value,
  fc
    .record({
      code: fc.oneof(fc.constantFrom(11_000, 10_107, 112, 50, 13), value),
      errorLabels: value,
      writeErrors: value,
    })
    .map((properties) => Object.assign(new Error('nonsense'), properties)),
)

const calls = Object.keys(CALLS)

test.each(calls)(
  'whatever documents come, %s is an answer or an error of ours, and no lease comes out of nothing',
  { timeout: FUZZ_TIMEOUT_MS },
  async (call) => {
    const answers = fc.array(answer, { minLength: 1, maxLength: 4 })
    await always(answers, { runs: runsOf(call), part: 1 / calls.length }, async (given) => {
      expectSaid(given, await tokenFrom(mongodb(databaseOf(inTurn(given)), { requestTimeout: '200ms' }), call))
    })
  },
)
