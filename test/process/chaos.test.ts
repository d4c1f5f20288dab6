import { expect, test } from 'vitest'
import { printed } from '../../chaos/report.ts'
import { run } from '../../chaos/run.ts'

/** `npm run chaos -- --seconds 600` for a long one, and for the other engines. */
const SECONDS = 20
const SEED = process.env['CHAOS_SEED'] ?? String(Math.floor(Math.random() * 1e9))

test(
  'ten clients on five Redis servers that fail all the time: no guarded update is lost, tokens grow, nothing is left',
  { timeout: 240_000 },
  async () => {
    const lines: string[] = []
    const report = await run({ engine: 'redlock', seconds: SECONDS, seed: SEED, tell: (line) => lines.push(line) })
    console.log(printed(report))
    expect(report.failures, `seed ${SEED}\n${lines.join('\n')}`).toEqual([])
    expect(report.lost.guarded).toBe(0)
    expect(report.leftovers).toEqual([])
    // The one that was stopped on purpose has overwritten somebody: the ledger sees a loss where there is one.
    expect(report.lost.unguarded).toBeGreaterThanOrEqual(1)
    // Its guarded write was refused.
    expect(report.hindrances['STALE_TOKEN']).toBeGreaterThanOrEqual(1)
    // The nemesis has been there: at most 1.8 s from one fault to the next.
    const faults = Object.values(report.faults).reduce((sum, count) => sum + count, 0)
    expect(faults).toBeGreaterThanOrEqual(5)
  },
)
