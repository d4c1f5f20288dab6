import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keptProgress, runSeeds, type Progress } from '../../sim/batch.ts'
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
