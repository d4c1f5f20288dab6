import type { Audit } from './ledger.ts'
import type { Span } from './spans.ts'

/** A time without a grant of an account; `fromMs` counts from the start of the run. */
export interface Gap {
  readonly account: string
  readonly fromMs: number
  readonly forMs: number
}

/** What a run has come to. */
export interface Report {
  readonly engine: string
  readonly seed: string
  readonly seconds: number
  /** Increments that the guarded ledger took. */
  readonly sections: number
  readonly grants: number
  /** How often a lease was had in which way. */
  readonly ways: Readonly<Record<string, number>>
  readonly faults: Readonly<Record<string, number>>
  /** How often what came in the way of a section: the codes of errors. */
  readonly hindrances: Readonly<Record<string, number>>
  readonly lost: { readonly guarded: number; readonly unguarded: number }
  /** How often two clients held the same account at once. */
  readonly shared: number
  readonly leftovers: readonly string[]
  /** The longest time without a grant of some account, while a majority of the servers had been well for a while. */
  readonly longestGap: Gap
  /** Why the run has failed; empty if it has not. */
  readonly failures: readonly string[]
}

interface Evidence {
  readonly mostGapMs: number
  readonly audit: Audit
  readonly unexplained: readonly Span[]
  readonly hanging: readonly string[]
  readonly deaths: readonly string[]
}

export function failures(report: Omit<Report, 'failures'>, evidence: Evidence): string[] {
  const { audit, mostGapMs, unexplained, hanging, deaths } = evidence
  const { lost, leftovers, longestGap } = report
  const found: string[] = []
  if (lost.guarded > 0) found.push(`${lost.guarded} guarded updates were lost`)
  for (const what of audit.repeated) found.push(`a token was granted twice: ${what}`)
  for (const what of audit.disordered) found.push(`a token is not greater than one that was granted before: ${what}`)
  for (const what of audit.stale) found.push(`the guarded ledger took a stale write: ${what}`)
  for (const { fromMs, toMs } of unexplained) {
    found.push(`two clients held one account at once for ${(toMs - fromMs).toFixed(1)} ms, and no clock had jumped`)
  }
  for (const what of leftovers) found.push(`left behind: ${what}`)
  if (longestGap.forMs > mostGapMs) found.push(`nobody got ${longestGap.account} for ${longestGap.forMs} ms`)
  for (const what of hanging) found.push(`${what} did not end`)
  found.push(...deaths)
  // The scripted stop loses one for certain: a harness that does not see it sees nothing.
  if (lost.unguarded === 0) found.push('without the guard nothing was lost, although a stale write was made')
  if (report.sections === 0) found.push('nothing was done')
  return found
}

export function printed(report: Report): string {
  const { engine, seed, hindrances, faults, lost, longestGap } = report
  return [
    `${engine}, ${report.seconds} s, seed ${seed}`,
    `  sections               ${report.sections} (${report.grants} grants)`,
    `  by                     ${list(report.ways)}`,
    `  hindered by            ${list(hindrances)}`,
    `  faults                 ${list(faults)}`,
    `  lost with the guard    ${lost.guarded}`,
    `  lost without it        ${lost.unguarded}`,
    `  two holders at once    ${report.shared}`,
    `  left behind            ${report.leftovers.length}`,
    `  longest gap            ${seconds(longestGap.forMs)} (${longestGap.account} from ${seconds(longestGap.fromMs)} on)`,
    ...(report.failures.length === 0 ? ['  passed'] : report.failures.map((failure) => `  FAILED: ${failure}`)),
  ].join('\n')
}

function list(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .map(([name, count]) => `${count} ${name}`)
    .join(', ')
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
