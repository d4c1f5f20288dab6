import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { durationMs } from '../src/duration.ts'
import { ASSUMPTIONS, verify } from './assumptions.ts'
import { keptProgress, runBatch, runSeeds, work, type Batch, type Progress } from './batch.ts'
import { failed } from './checkers/all.ts'
import { commit } from './commit.ts'
import { CORPUS, planOf } from './corpus.ts'
import { codeCoverage, faultCoverage } from './coverage.ts'
import { drawPlan } from './draw.ts'
import { exploreChosen } from './explore/everything.ts'
import { REAL_DRIVERS } from './plan.ts'
import { play } from './play.ts'
import type { Outcome } from './run.ts'
import { SCENARIOS } from './scenarios/catalogue.ts'
import { tell } from './scenarios/tell.ts'
import { shrink } from './shrink.ts'
import { svg } from './svg.ts'
import { print, storyOf, timeline } from './timeline.ts'
import { printTotals } from './totals.ts'

const USAGE = `npm run sim -- [options]
  --seed N           the first seed (default 1); with --runs 1, the default then, its whole timeline
  --runs M           how many seeds (default 200): on all cores, gone on with after an interruption
  --minutes M        stop after that time
  --totals           what long batches have come to so far
  --night            seed after seed on all cores, for eight hours, or --for 10m; ends at the first finding. Goes on where it was
  --coverage         which code has run in these seeds, and which faults have met
  --assumptions      runs in which one assumption of docs/guarantees.md is broken: what broke, and in how many; --runs M each
  --explore          every order of events of small configurations, in minutes; --all: of the large ones, too, in many hours;
                     --only NAME, --most N states each
  --scenario NAME    one of the catalogue, or all
  --over DRIVER      with --seed: with ioredis, iovalkey or node-redis over simulated sockets
  --svg FILE         a picture of the run or scenario; with all of them, FILE-NAME each`

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    runs: { type: 'string' },
    minutes: { type: 'string' },
    totals: { type: 'boolean' },
    night: { type: 'boolean' },
    for: { type: 'string' },
    coverage: { type: 'boolean' },
    assumptions: { type: 'boolean' },
    explore: { type: 'boolean' },
    all: { type: 'boolean' },
    only: { type: 'string' },
    most: { type: 'string' },
    scenario: { type: 'string' },
    over: { type: 'string' },
    svg: { type: 'string' },
    work: { type: 'boolean' },
    help: { type: 'boolean' },
  },
})

/** Of the commit they were made with, each in a file. */
const KEPT = path.join(import.meta.dirname, '..', 'progress')

// Errors are part of nearly every run, and their stacks cost more than the rest.
Error.stackTraceLimit = 0

if (values.work === true) work()
else if (values.help === true) console.log(USAGE)
else if (values.totals === true) printKept()
else if (values.explore === true) process.exitCode = await explorations()
else if (values.scenario !== undefined) process.exitCode = await scenarios(values.scenario)
else if (values.coverage === true) await coverage(Number(values.seed ?? 1), Number(values.runs ?? 200))
else if (values.assumptions === true) process.exitCode = await assumptions(Number(values.runs ?? 50))
else if (values.night === true) process.exitCode = await night(Number(values.seed ?? 1), values.for ?? '8h')
else if (values.seed !== undefined && Number(values.runs ?? 1) === 1) process.exitCode = await one(values.seed)
else process.exitCode = await many(Number(values.seed ?? 1), Number(values.runs ?? 200))

async function one(seed: string): Promise<number> {
  const plan = drawPlan(seed)
  const over = REAL_DRIVERS.find((driver) => driver === values.over)
  if (values.over !== undefined && over === undefined) {
    console.error(`--over: expected ${REAL_DRIVERS.join(', ')}, got ${values.over}`)
    return 2
  }
  const outcome = await play(over === undefined ? plan : { ...plan, over })
  const { world, verdicts } = outcome
  picture(world.history, `seed ${seed}`)
  console.log(`seed ${seed}, commit ${commit()}`)
  if (failed(verdicts).length > 0) return report(outcome)
  console.log(print(timeline(world.history)))
  for (const verdict of verdicts) {
    console.log(`${verdict.checker}: ${verdict.verdict}${'why' in verdict ? ` (${verdict.why})` : ''}`)
  }
  return 0
}

/** What has found something once is looked at first. Returns whether it finds nothing now. */
async function corpusHolds(): Promise<boolean> {
  for (const find of CORPUS) {
    const outcome = await play(planOf(find))
    if (failed(outcome.verdicts).length === 0) continue
    console.log(`of the corpus: ${find.found}`)
    await report(outcome)
    return false
  }
  return true
}

async function coverage(first: number, runs: number): Promise<void> {
  const { result, text } = await codeCoverage(() => runSeeds(first, runs))
  console.log(`seeds ${first} to ${first + runs - 1}, commit ${commit()}\n${text}\n${faultCoverage(result)}`)
}

/** Whether each breaks what it is said to break, and nothing else. */
async function assumptions(runs: number): Promise<number> {
  let wrong = 0
  for (const assumption of ASSUMPTIONS) {
    const counts: Record<string, number> = {}
    for (let seed = 1; seed <= runs; seed++) {
      const verified = await verify(assumption, seed)
      for (const promise of verified.broken) counts[promise] = (counts[promise] ?? 0) + 1
      for (const why of verified.wrong) console.log(`  seed ${seed}: ${why}`)
      wrong += verified.wrong.length
    }
    wrong += Object.keys(counts).filter((promise) => !(promise in assumption.breaks)).length
    const told = Object.entries(counts).map(([promise, count]) => `${promise} in ${count}`)
    console.log(`${assumption.name}: of ${runs} runs ${told.join(', ') || 'nothing broke'}`)
  }
  return wrong === 0 ? 0 : 1
}

async function night(first: number, time: string): Promise<number> {
  if (!(await corpusHolds())) return 1
  const forMs = durationMs(time, '--for')
  const runs = Number(values.runs ?? Infinity)
  const result = await runBatch(
    { first, runs, resume: true, untilFailure: true, forMs, progress: everySoOften(60_000) },
    import.meta.filename,
    KEPT,
  )
  printProgress(result)
  console.log(faultCoverage(result.totals))
  return toldOf(result.totals)
}

async function toldOf({ failedSeeds: [seed] }: { failedSeeds: readonly string[] }): Promise<number> {
  return seed === undefined ? 0 : report(await play(drawPlan(seed)))
}

/** Tells how far it is. */
function everySoOften(ms: number): NonNullable<Batch['progress']> {
  let toldMs = performance.now()
  return ({ seeds, failedSeeds }) => {
    if (performance.now() - toldMs < ms) return
    toldMs = performance.now()
    console.log(`${seeds} seeds, ${failedSeeds.length} failed`)
  }
}

async function many(first: number, runs: number): Promise<number> {
  const minutes = values.minutes === undefined ? {} : { forMs: Number(values.minutes) * 60_000 }
  if (!(await corpusHolds())) return 1
  const progress = everySoOften(10_000)
  const result = await runBatch({ first, runs, resume: runs > 1000, ...minutes, progress }, import.meta.filename, KEPT)
  printProgress(result)
  return toldOf(result.totals)
}

function printKept(): void {
  const kept = keptProgress(KEPT)
  for (const progress of kept) printProgress(progress)
  if (kept.length === 0)
    console.log('no runs are kept yet: --runs keeps those of more than 1000 seeds, and so does --night')
}

function printProgress({ commit: version, first, next, tookMs, totals }: Progress): void {
  console.log(`seeds ${first} to ${next - 1}, commit ${version}, ${(tookMs / 60_000).toFixed(1)} minutes`)
  console.log(printTotals(totals))
  if (totals.failedSeeds.length > 0) console.log(`failed: ${totals.failedSeeds.slice(0, 20).join(', ')}`)
}

/** Seed, commit, the shortened schedule, and what happened. */
async function report(outcome: Outcome): Promise<number> {
  const { plan, world, verdicts } = await shrink(outcome)
  const { faults, ...setup } = plan
  const [verdict] = failed(verdicts)
  console.log(`\nseed ${plan.seed}, commit ${commit()}: ${verdict!.checker} is false: ${verdict!.why}`)
  console.log(`setup ${JSON.stringify(setup)}`)
  console.log(`shortened from ${outcome.plan.faults.length} faults to ${faults.length}:`)
  for (const fault of faults) console.log(`  ${JSON.stringify(fault)}`)
  console.log(print(storyOf(world.history, verdict!)))
  picture(world.history, `seed ${plan.seed}, shortened: ${verdict!.why}`)
  return 1
}

function picture(history: Outcome['world']['history'], title: string): void {
  if (values.svg !== undefined) writeFileSync(values.svg, svg(history, title))
}

async function explorations(): Promise<number> {
  const { only, all, most } = values
  console.log(`commit ${commit()}`)
  const choice = { only, all, most: most === undefined ? undefined : Number(most) }
  return (await exploreChosen(choice, (line) => console.log(line))) ? 0 : 1
}

async function scenarios(name: string): Promise<number> {
  const chosen = name === 'all' ? SCENARIOS : SCENARIOS.filter((scenario) => scenario.name === name)
  if (chosen.length === 0) {
    console.error(`no scenario '${name}'; there are ${SCENARIOS.map((scenario) => scenario.name).join(', ')}`)
    return 2
  }
  let wrong = 0
  for (const scenario of chosen) {
    const told = await tell(scenario)
    console.log(told.text)
    if (!told.asExpected) wrong++
    if (values.svg !== undefined) writeFileSync(pictureOf(values.svg, chosen.length, scenario.name), told.picture)
  }
  return wrong === 0 ? 0 : 1
}

/** Several pictures have their names in that of the file. */
function pictureOf(file: string, pictures: number, name: string): string {
  const { dir, name: base, ext } = path.parse(file)
  return pictures === 1 ? file : path.join(dir, `${base}-${name}${ext}`)
}
