import * as fc from 'fast-check'
import { test } from 'vitest'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { postgres } from '../../../src/engines/postgres/index.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'
import { anything, CALLS, expectSaid, inTurn, runsOf, tokenFrom } from './calls.ts'

const ENGINES = {
  postgres: (query: () => Promise<unknown>) => postgres({ query }, { requestTimeout: '200ms', listen: false }),
  mariadb: (query: () => Promise<unknown>) => mariadb({ query }, { requestTimeout: '200ms' }),
}

const COLUMNS = [
  'token',
  'pid',
  'resource',
  'owner',
  'remaining',
  'wanted',
  'readers',
  'columns',
  'live',
  'awaited',
].concat([
  'state',
  'clock',
  'session',
  'notified',
  'lease',
  'held',
  'since',
  'until',
  'now',
  'name',
  'setting',
  'value',
  'Variable_name',
  'Value',
])
const VALUES = [
  '1767225600000000',
  '99999999999999999999',
  '61',
  '6d654068657265',
  '{}',
  '{"a":{"token":"1"}}',
  'me@here',
  '5000',
]
const value = anything(COLUMNS, VALUES)
/** As the statements ask for it. */
const PLAUSIBLE: Readonly<Record<string, readonly (string | null)[]>> = {
  clock: ['1767225600000000'],
  token: ['1767225600000000', '5', '0', '-1'],
  resource: ['61', 'a', '62', 'b'],
  owner: ['6d654068657265', 'me@here', '6f74686572', null],
  remaining: ['5000', '0', '-1'],
  held: ['0', '100'],
  wanted: ['250', null],
  readers: [null, '7b7d', '{}'],
  state: ['free', 'held', 'shared'],
  pid: ['1', '2'],
  live: ['1', '2'],
  awaited: ['0', '1'],
  lease: ['0', '1'],
  session: [null, '7'],
}
const plausible = fc.record(
  Object.fromEntries(Object.entries(PLAUSIBLE).map(([name, values]) => [name, fc.constantFrom(...values)])),
)
const row = fc.oneof(
  { weight: 3, arbitrary: plausible },
  {
    weight: 2,
    arbitrary: fc
      .tuple(plausible, fc.constantFrom(...COLUMNS), value)
      .map(([whole, name, odd]) => ({ ...whole, [name]: odd })),
  },
  fc.dictionary(fc.constantFrom(...COLUMNS), value, { maxKeys: 8 }),
)
const answer = fc.oneof(
  { weight: 3, arbitrary: fc.array(row, { maxLength: 3 }) },
  { weight: 2, arbitrary: fc.array(row, { maxLength: 3 }).map((rows) => ({ rows })) },
  fc.array(row, { maxLength: 2 }).map((rows) => [rows, []]),
  fc.record({ affectedRows: fc.oneof(fc.integer(), value) }),
  value,
  fc
    .record({
      code: fc.oneof(fc.constantFrom('42P01', '40001', '22P02', '57014'), value),
      errno: fc.oneof(fc.integer(), value),
    })
    .map((properties) => Object.assign(new Error('ringfence: taken meanwhile'), properties)),
)

const cases = Object.entries(ENGINES).flatMap(([name, make]) =>
  Object.keys(CALLS).map((call) => [name, call, make] as const),
)

test.each(cases)(
  '%s: whatever a driver answers, %s is an answer or an error of ours, and no lease comes out of nothing',
  { timeout: FUZZ_TIMEOUT_MS },
  async (_name, call, make) => {
    const answers = fc.array(answer, { minLength: 1, maxLength: 4 })
    await always(answers, { runs: runsOf(call), part: 1 / cases.length }, async (given) => {
      expectSaid(given, await tokenFrom(make(inTurn(given)), call))
    })
  },
)
