import { readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CORPUS } from '../../sim/corpus.ts'
import { byTest } from '../../sim/gate/by-test.ts'
import { seenByTest, withBug } from '../../sim/gate/mutation.ts'
import { MUTATIONS } from '../../sim/gate/mutations.ts'
import { pageWithTable } from '../../sim/gate/results.ts'
import { buildSimulator, node } from './build.ts'

const ROOT = path.join(import.meta.dirname, '../..')

let folder: string

beforeAll(async () => {
  folder = await buildSimulator()
}, 300_000)
afterAll(() => rmSync(folder, { recursive: true }))

describe('the gate', () => {
  test('has at least 25 mutations, each with a name of its own', () => {
    expect(MUTATIONS.length).toBeGreaterThanOrEqual(25)
    expect(new Set(MUTATIONS.map(({ name }) => name)).size).toBe(MUTATIONS.length)
  })

  test('has the table in docs/testing/gate.md that its kept results make, with a row for each of them', () => {
    const page = readFileSync(path.join(ROOT, 'docs/testing/gate.md'), 'utf8')
    expect(page, 'write it with: npm run sim:gate -- --keep').toBe(pageWithTable())
  })

  test.each(MUTATIONS.map((mutation) => [mutation.name, mutation] as const))(
    'can put the bug back: %s',
    (_name, mutation) => {
      const text = readFileSync(path.join(mutation.test === undefined ? folder : ROOT, mutation.file), 'utf8')
      expect(withBug(text, mutation)).not.toBe(text)
      for (const { find, replace } of mutation.changes) expect(replace).not.toBe(find)
    },
  )

  test.each(MUTATIONS.flatMap(({ name, test }) => (test === undefined ? [] : [[name, test] as const])))(
    'names a test that is there: %s',
    (_name, { file, title }) => {
      expect(readFileSync(path.join(ROOT, file), 'utf8')).toContain(title)
    },
  )

  // A sample: those that show within some seeds. `npm run sim:gate` does them all.
  test.each([
    'highest grant',
    'says yes above its number',
    'one owner',
    'release deletes',
    'node-redis forgets a channel',
    'goes on where it was',
    'joined a lease',
    'whether it has happened',
    'a repeated PUT',
    // By a test.
    'validity by the wall clock',
    'an owner before the last',
  ])('catches: %s', { timeout: 300_000 }, async (only) => {
    const { stdout } = await node(
      path.join(folder, 'sim/gate/main.js'),
      '--only',
      only,
      '--jobs',
      '1',
      '--seeds',
      '150',
    )
    expect(stdout).toMatch(/1 of 1 caught/)
  })

  test('does not take a test for one that sees a bug', { timeout: 300_000 }, async () => {
    const clock = ['test/unit/clock.test.ts', 'resolves after its time, not before'] as const
    const harmless = seenByTest('no bug', 'own', clock, 'src/clock.ts', 'return Math.max(', 'return 0 + Math.max(')
    const how = 'not by test/unit/clock.test.ts: 1 passed'
    expect(await byTest(harmless)).toEqual({ caught: false, how })
  })

  test('catches each bug that the corpus names by a seed of the corpus', { timeout: 300_000 }, async () => {
    const named = new Set(CORPUS.flatMap(({ bug = [] }) => bug))
    const { stdout } = await node(path.join(folder, 'sim/gate/main.js'), '--corpus', '--jobs', '1')
    expect(stdout).toContain(`${named.size} of ${named.size} caught`)
  })
})
