import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { MUTATIONS } from '../../sim/gate/mutations.ts'

const root = path.resolve(import.meta.dirname, '../..')
const page = readFileSync(`${root}/docs/testing/known-bugs.md`, 'utf8')
const rows = [...page.matchAll(/^\| (\d+) \| .* \| `(.+)` \|$/gm)].map((row) => ({ bug: row[1]!, file: row[2]! }))

test('docs/testing/known-bugs.md has 25 bugs, each with a file that tests it', () => {
  expect(rows.map(({ bug }) => Number(bug))).toEqual(Array.from({ length: 25 }, (_, index) => index + 1))
  for (const { bug, file } of rows) {
    const tests = readFileSync(`${root}/test/engines/redis/peers/${file}`, 'utf8')
    expect(tests, `${file} tests bug ${bug}`).toMatch(new RegExp(`test\\(\\s*['"]bug ${bug}: `))
  }
})

test('every number that the tests and the gate speak of is in the list', () => {
  const folder = `${root}/test/engines/redis/peers`
  const tested = readdirSync(folder).flatMap((file) =>
    [...readFileSync(`${folder}/${file}`, 'utf8').matchAll(/\bbug (\d+):/g)].map((match) => match[1]!),
  )
  const gate = MUTATIONS.flatMap(({ from }) => /peers ([\d, ]+)/.exec(from)?.[1]?.match(/\d+/g) ?? [])
  const listed = new Set(rows.map(({ bug }) => bug))
  expect([...tested, ...gate].filter((bug) => !listed.has(bug))).toEqual([])
  expect([tested.length, gate.length].map((count) => count > 25)).toEqual([true, true])
})
