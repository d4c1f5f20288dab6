import { describe, expect, test } from 'vitest'
import { printed, type Report } from '../../chaos/report.ts'
import { run } from '../../chaos/run.ts'

/** `npm run chaos -- --engine NAME --seconds 600` for a long one. */
const SEED = process.env['CHAOS_SEED'] ?? String(Math.floor(Math.random() * 1e9))

async function chaos(engine: string, seconds: number): Promise<Report> {
  const lines: string[] = []
  const report = await run({ engine, seconds, seed: SEED, tell: (line) => lines.push(line) })
  console.log(printed(report))
  expect(report.failures, `seed ${SEED}\n${lines.join('\n')}`).toEqual([])
  expect(report.lost.guarded).toBe(0)
  expect(report.leftovers).toEqual([])
  // The one that was stopped on purpose has overwritten somebody: the ledger sees a loss where there is one.
  expect(report.lost.unguarded).toBeGreaterThanOrEqual(1)
  // Its guarded write was refused.
  expect(report.hindrances['STALE_TOKEN']).toBeGreaterThanOrEqual(1)
  return report
}

describe('ten clients on servers that fail all the time: no guarded update is lost, tokens grow, nothing is left', () => {
  test('five Redis servers', { timeout: 240_000 }, async () => {
    const report = await chaos('redlock', 20)
    // The nemesis has been there: at most 1.8 s from one fault to the next.
    const faults = Object.values(report.faults).reduce((sum, count) => sum + count, 0)
    expect(faults).toBeGreaterThanOrEqual(5)
    expect(Object.keys(report.ways).toSorted()).toEqual(['acquire', 'close', 'elect', 'maxHold', 'once', 'using'])
  })

  test('three Redis servers that are emptied one after the other, and replaced', { timeout: 240_000 }, async () => {
    const report = await chaos('redlock-forgetful', 8)
    expect(report.faults['all servers emptied in turn']).toBeGreaterThanOrEqual(1)
  })

  test.each(['redis', 'mariadb', 'mongodb'])('%s', { timeout: 240_000 }, async (engine) => {
    const report = await chaos(engine, 4)
    expect(Object.keys(report.faults).length).toBeGreaterThanOrEqual(1)
  })
})
