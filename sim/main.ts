import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { keptProgress, runBatch, work, type Progress } from './batch.ts'
import { failed } from './checkers/all.ts'
import { commit } from './commit.ts'
import { EXPLORATIONS, WRONG_ADOPTIONS, WRONG_RESTARTS } from './explore/catalogue.ts'
import { explore, type Explored, type Limits } from './explore/explore.ts'
import { exploreLine, LINES, SHARED_LINES, WRONG_LINES } from './explore/line/catalogue.ts'
import { drawPlan } from './plan.ts'
import { run, type Outcome } from './run.ts'
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
  --explore          every order of events of small configurations; --only NAME, --most N states each
  --scenario NAME    one of the catalogue, or all
  --svg FILE         a picture of the run or scenario; with all of them, FILE-NAME each`

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    runs: { type: 'string' },
    minutes: { type: 'string' },
    totals: { type: 'boolean' },
    explore: { type: 'boolean' },
    only: { type: 'string' },
    most: { type: 'string' },
    scenario: { type: 'string' },
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
else if (values.totals === true) for (const progress of keptProgress(KEPT)) printProgress(progress)
else if (values.explore === true) process.exitCode = exploreAll(values.only, Number(values.most ?? Infinity))
else if (values.scenario !== undefined) process.exitCode = await scenarios(values.scenario)
else if (values.seed !== undefined && Number(values.runs ?? 1) === 1) process.exitCode = await one(values.seed)
else process.exitCode = await many(Number(values.seed ?? 1), Number(values.runs ?? 200))

async function one(seed: string): Promise<number> {
  const outcome = await run(drawPlan(seed))
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

async function many(first: number, runs: number): Promise<number> {
  const minutes = values.minutes === undefined ? {} : { forMs: Number(values.minutes) * 60_000 }
  let toldMs = performance.now()
  const progress = (totals: { seeds: number; failedSeeds: readonly string[] }): void => {
    if (performance.now() - toldMs < 10_000) return
    toldMs = performance.now()
    console.log(`${totals.seeds} seeds, ${totals.failedSeeds.length} failed`)
  }
  const result = await runBatch({ first, runs, resume: runs > 1000, ...minutes, progress }, import.meta.filename, KEPT)
  printProgress(result)
  const [seed] = result.totals.failedSeeds
  return seed === undefined ? 0 : report(await run(drawPlan(seed)))
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

function exploreAll(only: string | undefined, states: number): number {
  let wrong = 0
  const look = (name: string, wanted: Explored['verdict'], found: (limits: Limits) => Explored): void => {
    if (
      only !== undefined &&
      ([EXPLORATIONS, LINES, SHARED_LINES].some((all) => only in all) ? name !== only : !name.includes(only))
    )
      return
    const told = (seen: number, open: number): void =>
      console.error(`${name}: ${seen} states so far, ${open} of them still to be looked at`)
    const explored = found({ states, told })
    const { verdict, why, trail, transitions, doubt, tookMs } = explored
    console.log(
      `${name}: ${verdict}${why === undefined ? '' : ` (${why})`}; ${explored.states} states, ${transitions} transitions, ${(tookMs / 1000).toFixed(1)} s, hash doubt ${doubt.toExponential(0)}`,
    )
    if (verdict === 'broken') for (const step of trail) console.log(`    ${step}`)
    if (verdict !== wanted) wrong++
  }
  console.log(`commit ${commit()}`)
  for (const [name, one] of Object.entries(EXPLORATIONS)) look(name, 'holds', (limits) => explore(one, limits))
  for (const [name, one] of Object.entries({ ...WRONG_RESTARTS, ...WRONG_ADOPTIONS }))
    look(`wrong: ${name}`, 'broken', (limits) => explore(one, limits))
  for (const [name, one] of Object.entries({ ...LINES, ...SHARED_LINES }))
    look(name, 'holds', (limits) => exploreLine(one, limits))
  for (const [name, one] of Object.entries(WRONG_LINES))
    look(`wrong: ${name}`, 'broken', (limits) => exploreLine(one, limits))
  return wrong === 0 ? 0 : 1
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
