import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keptProgress, runSeeds, type Progress } from '../../sim/batch.ts'
import { codeCoverage, faultCoverage } from '../../sim/coverage.ts'
import { MUTATIONS } from '../../sim/gate/mutations.ts'
import { until } from '../../harness/until.ts'
import { buildSimulator, node } from './build.ts'

let folder: string

beforeAll(async () => {
  folder = await buildSimulator()
}, 300_000)
afterAll(() => rmSync(folder, { recursive: true }))

const FIRST = 5000

function kept(): Progress | undefined {
  return keptProgress(path.join(folder, 'progress'))[0]
}

/** A long batch, killed as soon as it has gone on. */
async function sitting(): Promise<Progress> {
  const from = kept()?.next ?? FIRST
  const main = path.join(folder, 'sim/main.js')
  const batch = spawn(process.execPath, [main, '--seed', String(FIRST), '--runs', '1000000'], { stdio: 'ignore' })
  const ended = once(batch, 'exit')
  await until(() => (kept()?.next ?? FIRST) > from, { what: 'some more seeds', withinMs: 150_000 })
  batch.kill('SIGKILL')
  await ended
  return kept()!
}

test('a batch that was killed goes on where it was, and loses and repeats nothing', { timeout: 400_000 }, async () => {
  const first = await sitting()
  // Killed in the middle of writing: what was there before counts.
  const [file] = readdirSync(path.join(folder, 'progress')).filter((name) => name.endsWith('.json'))
  writeFileSync(path.join(folder, 'progress', `${file!}.new`), '{ "first": 5')
  const second = await sitting()
  expect(second.next).toBeGreaterThan(first.next)
  expect(second.totals).toEqual(await runSeeds(FIRST, second.next - FIRST))
  const { stdout } = await node(path.join(folder, 'sim/main.js'), '--totals')
  expect(stdout).toContain(`seeds ${FIRST} to ${second.next - 1}, commit `)
})

test('a night ends at the first finding, tells its story, and tells it again when it is begun once more', async () => {
  const { file, changes } = MUTATIONS.find(({ name }) => name === 'an effect does not look whether it has happened')!
  const broken = path.join(folder, file)
  const text = readFileSync(broken, 'utf8')
  writeFileSync(broken, text.replace(changes[0]!.find, changes[0]!.replace))
  const night = async (...args: string[]): Promise<string> => {
    const failure = node(path.join(folder, 'sim/main.js'), '--night', '--seed', '20001', ...args).then(() => undefined)
    const { code, stdout } = (await failure.catch((error: unknown) => error)) as { code: number; stdout: string }
    expect(code).toBe(1)
    return stdout
  }
  const first = await night('--for', '5m')
  writeFileSync(broken, text)
  const seed = /^failed: (\d+)/m.exec(first)?.[1]
  expect(first).toMatch(new RegExp(`seed ${seed}, commit .*: effects is false`))
  expect(first).toContain('shortened from')
  expect(first).toMatch(/^pairs of kinds in one run: \d+ of \d+$/m)
  // Also when nothing is left to do.
  const again = await night('--for', '0s')
  expect(again).toContain(`failed: ${seed}`)
}, 300_000)

test('which code has run is told, and which faults have met', async () => {
  const { result, text } = await codeCoverage(() => runSeeds(30_001, 5))
  expect(text).toMatch(/^code of the library that is loaded: [1-9]\d*\.\d % of \d+ files has run/)
  expect(faultCoverage(result)).toMatch(/^faults in 5 seeds: [1-9]\d* of \d+ kinds/)
})
