import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { SCENARIOS } from '../../sim/scenarios/catalogue.ts'
import { tell } from '../../sim/scenarios/tell.ts'

test.each(SCENARIOS.map((scenario) => [scenario.name, scenario] as const))(
  '%s does damage without the remedy and none with it',
  async (name, scenario) => {
    const { text, asExpected, picture } = await tell(scenario)
    // eslint-disable-next-line vitest/valid-expect -- the message is what to look at
    expect(asExpected, text).toBe(true)
    expect(text).toContain(name)
    expect(picture).toMatch(/^<svg [\s\S]*<\/svg>\n$/)
  },
)

test('every failure of the catalogue has a name of its own', () => {
  expect(new Set(SCENARIOS.map(({ name }) => name)).size).toBe(SCENARIOS.length)
  expect(SCENARIOS.length).toBeGreaterThanOrEqual(16)
})

test('docs/testing/catalogue.md tells them as they happen', async () => {
  const file = path.resolve(import.meta.dirname, '../../docs/testing/catalogue.md')
  const text = readFileSync(file, 'utf8')
  const [begin, end] = ['<!-- scenarios -->\n', '<!-- end of scenarios -->']
  const told: string[] = []
  for (const scenario of SCENARIOS) told.push((await tell(scenario)).markdown)
  const [before, rest] = text.split(begin)
  const after = rest!.slice(rest!.indexOf(end))
  const now = [before, begin, told.join('\n'), after].join('')
  if (process.env['UPDATE_CATALOGUE'] === '1') writeFileSync(file, now)
  const written = readFileSync(file, 'utf8')
  expect(now, 'update it with: UPDATE_CATALOGUE=1 npx vitest run test/sim/scenarios.test.ts').toBe(written)
})
