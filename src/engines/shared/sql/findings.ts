import type { Finding } from '../../../engine.ts'
import { atLeast, checkClockSpeed, measureClock, offsetFound, type ClockPlan, type Interval } from '../clock-check.ts'
import { findings, type Findings } from '../findings.ts'
import { checkRoundTrip } from '../round-trip.ts'
import { lackingColumns, tableShape } from './table-shape.ts'

/** This far apart, tokens of a server that takes over after a failover may be behind those of the one before. */
const FAR_MS = 60_000

/** How far the server's clock is from ours, how fast it runs, and how long an answer takes. `read` asks for it, in ms since 1970. */
export async function clockFindings(
  engine: string,
  plan: ClockPlan & { readonly read: () => Promise<number> },
): Promise<readonly Finding[]> {
  const report = findings(engine)
  const { tripsMs, measured } = await measureClock(plan.read, plan)
  const clock =
    measured === undefined
      ? [report.note('clock', 'The server does not tell its time.', 'Its clock was not checked.')]
      : [checkClockSpeed(report, 'clock-speed', measured, plan), checkDistance(report, measured.aheadMs)]
  const roundTrip = checkRoundTrip(report, tripsMs, {
    ttlMs: plan.ttlMs,
    slowMs: plan.ttlMs / 20,
    meaning: `That is much of a ttl of ${plan.ttlMs} ms: renewals may come too late.`,
    ttlPerTrip: 20,
    remedy: 'move the server nearer',
  })
  return [...clock, roundTrip]
}

function checkDistance(report: Findings, aheadMs: Interval): Finding {
  const found = offsetFound('Its clock', aheadMs, 'this process')
  if (atLeast(aheadMs) <= FAR_MS) {
    return report.ok('clock', found, 'The server alone counts the time of leases, so this does not matter to them.')
  }
  const meaning =
    'The server alone counts the time of leases. But tokens follow its clock: a server that takes over with another clock, ' +
    'and without the last grants, could give out lower ones.'
  return report.note('clock', found, meaning, 'Set the clocks by NTP.')
}

/** A table that lacks columns; undefined where it has them all. `change`: the statement that adds them to one of an earlier version. */
export function wrongTable(
  report: Findings,
  name: string,
  there: string | null | undefined,
  columns: readonly string[],
  change: string,
): Finding | undefined {
  const shape = tableShape(there, columns)
  if (shape === 'right') return undefined
  const found = `The table ${name} does not have the columns ${lackingColumns(there ?? '', columns).join(', ')}.`
  if (shape !== 'earlier') {
    const meaning = 'It is another table, or one of another version.'
    return report.critical('table', found, meaning, 'Choose another table with the option table.')
  }
  const meaning = 'It is of an earlier version, and no lease can be granted.'
  return report.critical('table', found, meaning, `Run \`ringfence init\` or engine.init(), or by hand:\n${change}`)
}
