import { expect, test } from 'vitest'
import { given } from '../../src/arguments.ts'

test('given leaves out what is undefined, and nothing else', () => {
  const fields = { absent: undefined, nothing: null, zero: 0, no: false, empty: '' }
  expect(Object.keys(given(fields))).toEqual(['nothing', 'zero', 'no', 'empty'])
})
