import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { drivers, frameworks, servers } from '../../versions/list.mjs'
import { isOrdinary, pageWithTables } from '../../versions/table.mjs'

const read = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')

test('the tables of docs/versions.md show the kept results: node versions/table.mjs', () => {
  expect(read('docs/versions.md')).toBe(pageWithTables())
})

test('every peer dependency is run at its lowest version', () => {
  const { peerDependencies } = JSON.parse(read('package.json')) as { peerDependencies: Record<string, string> }
  const lowest = new Map<string, string>()
  for (const { driver, version } of drivers) if (!lowest.has(driver)) lowest.set(driver, version)
  const outside = Object.entries(peerDependencies).filter(
    ([name, range]) => !`${lowest.get(name)}.`.startsWith(`${range.replace('>=', '')}.`),
  )
  expect(outside).toEqual([])
})

test('every row was run, by its command or by npm test', () => {
  const results = JSON.parse(read('versions/results.json')) as object
  const rows = [...servers, ...drivers, ...frameworks]
  expect(rows.filter((row) => !isOrdinary(row) && !(row.id in results)).map(({ id }) => id)).toEqual([])
})
