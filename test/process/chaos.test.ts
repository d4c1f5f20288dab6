import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { printed, type Report } from '../../chaos/report.ts'
import { run } from '../../chaos/run.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

/** `npm run chaos -- --engine NAME --seconds 600` for a long one. */
const SEED = process.env['CHAOS_SEED'] ?? String(Math.floor(Math.random() * 1e9))

async function chaos(engine: string, seconds: number): Promise<Report> {
  const lines: string[] = []
  const report = await run({ engine, seconds, seed: SEED, tell: (line) => lines.push(line) })
  return sound(report, lines.join('\n'))
}

/** As `npm run chaos` does it: as root, in a network of its own. Says whether servers could be cut off from each other there. */
async function chaosApart(engine: string, seconds: number): Promise<{ report: Report; canCut: boolean }> {
  const folder = createFolder('chaos')
  const file = path.join(folder, 'report.json')
  const main = new URL('../../chaos/main.mjs', import.meta.url).pathname
  const args = [main, '--engine', engine, '--seconds', String(seconds), '--seed', SEED, '--json', file]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  const { reports } = JSON.parse(readFileSync(file, 'utf8')) as { reports: [Report] }
  removeFolder(folder)
  return { report: sound(reports[0], stdout), canCut: !/no partitions|cannot cut/.test(stdout) }
}

function sound(report: Report, told: string): Report {
  console.log(printed(report))
  expect(report.failures, `seed ${SEED}\n${told}`).toEqual([])
  expect(report.lost.guarded).toBe(0)
  expect(report.leftovers).toEqual([])
  // The one that was stopped on purpose has overwritten somebody: the ledger sees a loss where there is one.
  expect(report.lost.unguarded).toBeGreaterThanOrEqual(1)
  // Its guarded write was refused.
  expect(report.hindrances['STALE_TOKEN']).toBeGreaterThanOrEqual(1)
  return report
}

/** What each is asked for besides. */
const RUNS: Readonly<Record<string, (engine: string) => Promise<void>>> = {
  async redlock(engine) {
    const report = await chaos(engine, 20)
    // The nemesis has been there: at most 1.8 s from one fault to the next.
    const faults = Object.values(report.faults).reduce((sum, count) => sum + count, 0)
    expect(faults).toBeGreaterThanOrEqual(5)
    expect(Object.keys(report.ways).toSorted()).toEqual(['acquire', 'close', 'elect', 'maxHold', 'once', 'using'])
  },
  async 'redlock-forgetful'(engine) {
    const report = await chaos(engine, 8)
    expect(report.faults['all servers emptied in turn']).toBeGreaterThanOrEqual(1)
  },
  redis: one,
  mariadb: one,
  async mongodb(engine) {
    const { report, canCut } = await chaosApart(engine, 4)
    expect((report.faults['two servers cut off from each other'] ?? 0) > 0).toBe(canCut)
  },
}

async function one(engine: string): Promise<void> {
  const report = await chaos(engine, 4)
  expect(Object.keys(report.faults).length).toBeGreaterThanOrEqual(1)
}

/** Much of a run is waiting: for clients to start and to end, for ttls, for the next fault. Both take about as long. */
const SIDE_BY_SIDE = [
  ['redlock', 'mongodb'],
  ['redlock-forgetful', 'redis', 'mariadb'],
]

test('every run is made', () => {
  expect(SIDE_BY_SIDE.flat().toSorted()).toEqual(Object.keys(RUNS).toSorted())
})

describe.concurrent.each(SIDE_BY_SIDE.map((engines) => [engines.join(', '), engines] as const))(
  'ten clients on servers that fail all the time: no guarded update is lost, tokens grow, nothing is left: %s',
  (_names, engines) => {
    test.sequential.each(engines)('%s', { timeout: 240_000 }, (engine) => RUNS[engine]!(engine))
  },
)

test.concurrent('a guard that lets every token pass is seen', { timeout: 240_000 }, async () => {
  const report = await run({
    engine: 'file',
    // A client is stopped between its look and its write first, and that is enough.
    seconds: 0,
    seed: SEED,
    tell: () => undefined,
    clients: 3,
    guard: 'lets all pass',
  })
  expect(report.failures.join()).toMatch(/\d+ guarded updates were lost/)
  expect(report.hindrances['STALE_TOKEN']).toBeUndefined()
})
