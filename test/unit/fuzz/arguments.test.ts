import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { durationMs, shown } from '../../../src/duration.ts'
import { memory } from '../../../src/engines/memory.ts'
import { locksSettings, waitTerms } from '../../../src/options.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

const engine = memory()
const { defaults } = locksSettings({}, engine)
const DURATION = /^\d+(\.\d+)?(ms|s|m|h|d)$/
const extent = { runs: 100, part: 1 / 3 }

test('anything that is no duration is an error that names the option', { timeout: FUZZ_TIMEOUT_MS }, async () => {
  const garbage = fc
    .anything()
    .filter(
      (value) =>
        value !== undefined && typeof value !== 'number' && !(typeof value === 'string' && DURATION.test(value)),
    )
  const options = fc.tuple(garbage, fc.constantFrom('ttl', 'wait', 'maxHold'))
  await always(options, extent, ([value, option]) => {
    expect(() => waitTerms({ [option]: value }, defaults, engine)).toThrow(new RegExp(`^${option}: expected`))
  })
})

test('a text that is no duration is shown in the error', { timeout: FUZZ_TIMEOUT_MS }, async () => {
  const garbage = fc.string().filter((text) => !DURATION.test(text))
  await always(garbage, extent, (text) => {
    expect(() => durationMs(text, 'maxHold')).toThrow(TypeError)
    expect(() => durationMs(text, 'maxHold')).toThrow(/^maxHold: expected .*'30s'.*, got '/s)
  })
})

test('to show a value never throws, and never takes more than a line', { timeout: FUZZ_TIMEOUT_MS }, async () => {
  await always(fc.anything({ withNullPrototype: true, withBigInt: true }), extent, (value) => {
    expect(shown(value).length).toBeLessThan(200)
  })
})
