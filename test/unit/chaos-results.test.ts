import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { pageWithTable } from '../../chaos/results.ts'

test('the table of the chaos runs is made from the kept results', () => {
  expect(readFileSync(new URL('../../docs/testing/runs.md', import.meta.url), 'utf8')).toBe(pageWithTable())
})
