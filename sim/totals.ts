import { lostUpdates } from './checkers/guard.ts'
import { POOL, type Plan } from './plan.ts'
import type { Outcome } from './run.ts'

/** What a number of runs came to. */
export interface Totals {
  seeds: number
  /** Seeds that ran with a real driver. */
  withDriver: number
  /** Seeds in which some processes were of an older version; holders counted in objects, too; and callers looked, too. */
  with: { older: number; objects: number; looks: number }
  sections: number
  /** Sections that were shared. */
  shared: number
  /** Permits that were got, leases that were adopted, calls that joined a lease, effects that happened. */
  kinds: { permits: number; adopted: number; joined: number; effects: number }
  events: number
  faults: Record<string, number>
  /** In how many seeds two kinds of faults happened, by both names. */
  pairs: Record<string, number>
  verdicts: Record<string, { true: number; false: number; unknown: number }>
  /** Updates that the store without a guard lost. */
  unguardedLosses: number
  refusedWrites: number
  failedSeeds: string[]
}

export function noTotals(): Totals {
  return {
    seeds: 0,
    withDriver: 0,
    with: { older: 0, objects: 0, looks: 0 },
    sections: 0,
    shared: 0,
    kinds: { permits: 0, adopted: 0, joined: 0, effects: 0 },
    events: 0,
    faults: {},
    pairs: {},
    verdicts: {},
    unguardedLosses: 0,
    refusedWrites: 0,
    failedSeeds: [],
  }
}

export function addRun(totals: Totals, { plan, world, verdicts }: Outcome): void {
  const { history } = world
  totals.seeds++
  if (plan.over !== undefined) totals.withDriver++
  if (plan.processes.some(({ isOlder }) => isOlder)) totals.with.older++
  if (plan.objects !== undefined) totals.with.objects++
  if (plan.looks === true) totals.with.looks++
  totals.sections += history.of('holds').length
  totals.shared += history.of('holds').filter(({ shared }) => shared).length
  const { kinds } = totals
  kinds.permits += history.of('holds').filter(({ resources }) => resources[0]!.startsWith(`${POOL}#`)).length
  kinds.adopted += history.of('adopted').length
  kinds.joined += history.of('nested').filter(({ outcome }) => outcome === 'joined').length
  kinds.effects += history.of('effect').filter(({ ran }) => ran).length
  totals.events += history.events.length
  const happened = [...history.of('fault').map(({ name }) => name), ...differences(plan)]
  for (const name of happened) totals.faults[name] = (totals.faults[name] ?? 0) + 1
  const names = [...new Set(happened)]
  for (const pair of pairsOf(names)) totals.pairs[pair] = (totals.pairs[pair] ?? 0) + 1
  for (const { checker, verdict } of verdicts) {
    const counts = (totals.verdicts[checker] ??= { true: 0, false: 0, unknown: 0 })
    counts[verdict]++
  }
  totals.unguardedLosses += lostUpdates(history, 'unguarded').length
  totals.refusedWrites += history.of('write', 'read').filter(({ accepted }) => !accepted).length
  if (verdicts.some(({ verdict }) => verdict === 'false')) totals.failedSeeds.push(plan.seed)
}

/** What is wrong from the beginning: clients that differ in what all must have alike. */
export const DIFFERENCES = ['other nodes', 'other maxTtl'] as const

function differences({ processes }: Plan): readonly string[] {
  return processes.flatMap(({ nodes, maxTtlMs }) => [
    ...(nodes === undefined ? [] : [DIFFERENCES[0]]),
    ...(maxTtlMs === undefined ? [] : [DIFFERENCES[1]]),
  ])
}

/** Each two of them, whichever comes first. */
export function pairsOf(names: readonly string[]): string[] {
  const sorted = [...names].sort()
  return sorted.flatMap((name, index) => sorted.slice(index + 1).map((other) => `${name} + ${other}`))
}

/** A run that could not be brought to its end. */
export function addBrokenRun(totals: Totals, seed: string): void {
  totals.seeds++
  totals.verdicts['the run ends'] ??= { true: 0, false: 0, unknown: 0 }
  totals.verdicts['the run ends'].false++
  totals.failedSeeds.push(seed)
}

export function merge(into: Totals, other: Totals): void {
  into.seeds += other.seeds
  into.withDriver += other.withDriver
  for (const what of ['older', 'objects', 'looks'] as const) into.with[what] += other.with[what]
  into.sections += other.sections
  into.shared += other.shared
  for (const kind of ['permits', 'adopted', 'joined', 'effects'] as const) into.kinds[kind] += other.kinds[kind]
  into.events += other.events
  into.unguardedLosses += other.unguardedLosses
  into.refusedWrites += other.refusedWrites
  into.failedSeeds.push(...other.failedSeeds)
  for (const kind of ['faults', 'pairs'] as const) {
    for (const [name, count] of Object.entries(other[kind])) into[kind][name] = (into[kind][name] ?? 0) + count
  }
  for (const [checker, counts] of Object.entries(other.verdicts)) {
    const sums = (into.verdicts[checker] ??= { true: 0, false: 0, unknown: 0 })
    for (const verdict of ['true', 'false', 'unknown'] as const) sums[verdict] += counts[verdict]
  }
}

export function printTotals(totals: Totals): string {
  const faults = Object.entries(totals.faults).sort(([, a], [, b]) => b - a)
  const injected = faults.reduce((sum, [, count]) => sum + count, 0)
  return [
    `${totals.seeds} seeds (${totals.withDriver} with a real driver, ${totals.with.older} with an older version, ${totals.with.objects} with objects, ${totals.with.looks} with looks), ${totals.sections} leases (${totals.shared} shared), ${totals.events} events, ${injected} faults`,
    `${totals.kinds.permits} permits, ${totals.kinds.adopted} adopted, ${totals.kinds.joined} joined, ${totals.kinds.effects} effects`,
    `faults: ${faults.map(([name, count]) => `${name} ${count}`).join(', ') || 'none'}`,
    `lost updates: ${totals.unguardedLosses} without the guard; ${totals.refusedWrites} stale accesses refused by it`,
    'checker                  true    unknown false',
    ...Object.entries(totals.verdicts).map(
      ([checker, { true: yes, unknown, false: no }]) =>
        `${checker.padEnd(24)} ${String(yes).padEnd(7)} ${String(unknown).padEnd(7)} ${no}`,
    ),
  ].join('\n')
}
