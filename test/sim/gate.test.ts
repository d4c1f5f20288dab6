import { readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MUTATIONS } from '../../sim/gate/mutations.ts'
import { buildSimulator, node } from './build.ts'

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

  test.each(MUTATIONS.map((mutation) => [mutation.name, mutation] as const))(
    'can put the bug back: %s',
    (_name, { file, changes }) => {
      const text = readFileSync(path.join(folder, file), 'utf8')
      for (const { find, replace } of changes) {
        expect(text.split(find)).toHaveLength(2)
        expect(replace).not.toBe(find)
      }
    },
  )

  // A sample: those that show within some seeds. `npm run sim:gate` does them all.
  test.each([
    'highest grant',
    'says yes above its number',
    'one owner',
    'restarted votes at once',
    'release deletes',
    'a partial attempt',
    'one permit more',
    'goes on where it was',
    'joined a lease',
    'whether it has happened',
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
})
