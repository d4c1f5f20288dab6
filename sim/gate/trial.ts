import { failed } from '../checkers/all.ts'
import { ADMISSIONS, exploreAdmission } from '../explore/admission.ts'
import { EXPLORATIONS } from '../explore/catalogue.ts'
import { explore } from '../explore/explore.ts'
import { exploreLine, LINES, SHARED_LINES } from '../explore/line/catalogue.ts'
import { drawKinds, drawLeases, type Plan } from '../plan.ts'
import { run } from '../run.ts'
import type { Mutation } from './mutation.ts'

/** What a trial of mutated code found; runs in a process of its own, from a copy of the code. */
export interface Finding {
  readonly caught: boolean
  readonly how: string
}

/** The first seed in which a ticket is tried again on nodes that have forgotten that it was used. It takes thousands to find one. */
const TICKET_SEED = 5672

/** Wrong protocols show among the first states; the rest is for the right one. */
const MOST_STATES = 250_000

function byExploration(): Finding {
  let states = 0
  for (const [name, configuration] of Object.entries(EXPLORATIONS)) {
    if (configuration.size !== 'small' && configuration.duplicates === 0) continue
    const found = explore(configuration, { states: MOST_STATES })
    states += found.states
    if (found.verdict === 'broken') return { caught: true, how: `${name}: ${found.why} (${found.trail.length} steps)` }
  }
  return { caught: false, how: `not in ${states} states` }
}

function byLine(lines: typeof LINES): Finding {
  let states = 0
  for (const [name, configuration] of Object.entries(lines)) {
    const found = exploreLine(configuration, {
      states: configuration.size === 'small' ? MOST_STATES : MOST_STATES / 10,
    })
    states += found.states
    if (found.verdict === 'broken') return { caught: true, how: `${name}: ${found.why} (${found.trail.length} steps)` }
  }
  return { caught: false, how: `not in ${states} states` }
}

async function byAdmission(): Promise<Finding> {
  let states = 0
  for (const [name, plan] of Object.entries(ADMISSIONS)) {
    const found = await exploreAdmission(plan)
    states += found.states
    if (found.broken !== undefined) return { caught: true, how: `${name} (${found.broken.length} steps)` }
  }
  return { caught: false, how: `not in ${states} states` }
}

async function bySeeds(most: number, draw: (seed: number) => Plan): Promise<Finding> {
  for (let seed = 1; seed <= most; seed++) {
    const wrong = await run(draw(seed)).then(
      ({ verdicts }) => failed(verdicts).map(({ checker }) => checker),
      // A run that can't even be finished: time stands still, or the code fails.
      (error: unknown) => [`run: ${String(error)}`],
    )
    if (wrong.length > 0) return { caught: true, how: `seed ${seed}: ${wrong.join(', ')}` }
  }
  return { caught: false, how: `not in ${most} seeds` }
}

function trial(by: Mutation['by'], seeds: number): Finding | Promise<Finding> {
  switch (by) {
    case 'exploration':
      return byExploration()
    case 'line':
      return byLine(LINES)
    case 'readers':
      return byLine(SHARED_LINES)
    case 'admission':
      return byAdmission()
    case 'seeds':
      return bySeeds(seeds, drawLeases)
    case 'kinds':
      return bySeeds(seeds, drawKinds)
    case 'ticket':
      return bySeeds(1, () => drawKinds(TICKET_SEED))
  }
}

Error.stackTraceLimit = 0
process.on('message', (task) => {
  const { by, seeds } = task as { by: Mutation['by']; seeds: number }
  void (async () => {
    process.send!(await trial(by, seeds))
    process.disconnect()
  })()
})
