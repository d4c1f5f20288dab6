import { failed } from '../checkers/all.ts'
import type { Wire } from '../client.ts'
import { CORPUS, planOf } from '../corpus.ts'
import { ADMISSIONS, exploreAdmission } from '../explore/admission.ts'
import { EXPLORATIONS } from '../explore/catalogue.ts'
import { explore } from '../explore/explore.ts'
import { exploreLine, LINES, SHARED_LINES } from '../explore/line/catalogue.ts'
import { withObjects } from '../extras.ts'
import { drawKinds, drawLeases, type Plan, type RealDriver } from '../plan.ts'
import { play } from '../play.ts'
import { overSockets } from '../sockets/run.ts'
import { SubscriptionsRun, type SubscriptionsOutcome } from '../subscriptions.ts'
import type { Mutation } from './mutation.ts'

/** What a trial of mutated code found; runs in a process of its own, from a copy of the code. */
export interface Finding {
  readonly caught: boolean
  readonly how: string
}

/** Wrong protocols show among the first states; the rest is for the right one. */
const MOST_STATES = 250_000

function byExploration(): Finding {
  let states = 0
  for (const [name, configuration] of Object.entries(EXPLORATIONS)) {
    if (configuration.size !== 'small' && configuration.duplicates === 0) continue
    const found = explore(configuration, { states: MOST_STATES })
    states += found.states
    if (found.verdict === 'broken')
      return { caught: true, how: `exploration, ${name}: ${found.why} (${found.trail.length} steps)` }
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
    if (found.verdict === 'broken')
      return { caught: true, how: `exploration, ${name}: ${found.why} (${found.trail.length} steps)` }
  }
  return { caught: false, how: `not in ${states} states` }
}

async function byAdmission(): Promise<Finding> {
  let states = 0
  for (const [name, plan] of Object.entries(ADMISSIONS)) {
    const found = await exploreAdmission(plan)
    states += found.states
    if (found.broken !== undefined) return { caught: true, how: `exploration, ${name} (${found.broken.length} steps)` }
  }
  return { caught: false, how: `not in ${states} states` }
}

/** The seeds that found this bug first, and then one after the other. */
async function bySeeds(bug: string, most: number, draw: (seed: number) => Plan, how = ''): Promise<Finding> {
  for (const find of CORPUS) {
    if (find.bug !== bug) continue
    const wrong = await wrongIn(planOf(find))
    if (wrong.length > 0) return { caught: true, how: `seed ${find.seed} of the corpus: ${wrong.join(', ')}` }
  }
  for (let seed = 1; seed <= most; seed++) {
    const wrong = await wrongIn(draw(seed))
    if (wrong.length > 0) return { caught: true, how: `seed ${seed}${how}: ${wrong.join(', ')}` }
  }
  return { caught: false, how: `not in ${most} seeds` }
}

async function bySubscriptions(most: number, driver?: RealDriver): Promise<Finding> {
  for (let seed = 1; seed <= most; seed++) {
    const run = (wire?: Wire): Promise<SubscriptionsOutcome> => new SubscriptionsRun(seed, { wire }).run()
    const [why] = (await (driver === undefined ? run() : overSockets(driver, run))).wrong
    if (why !== undefined)
      return {
        caught: true,
        how: `subscriptions alone${driver === undefined ? '' : `, of ${driver}`}, seed ${seed}: ${why}`,
      }
  }
  return { caught: false, how: `not in ${most} seeds` }
}

function wrongIn(plan: Plan): Promise<string[]> {
  return play(plan).then(
    ({ verdicts }) => failed(verdicts).map(({ checker }) => checker),
    // A run that cannot even be finished: time stands still, or the code fails.
    (error: unknown) => [`run: ${String(error)}`],
  )
}

/** What the process is to find; with no seeds, in the corpus alone. */
export interface Task extends Pick<Mutation, 'by' | 'name'> {
  readonly seeds: number
}

function trial({ by, name, seeds }: Task): Finding | Promise<Finding> {
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
      return bySeeds(name, seeds, drawLeases)
    case 'kinds':
      return bySeeds(name, seeds, drawKinds, ' with other kinds')
    case 'objects':
      return bySeeds(name, seeds, (seed) => withObjects(drawLeases(seed), seed), ' with objects')
    case 'ioredis':
      return bySeeds(name, seeds, (seed) => ({ ...drawLeases(seed), over: 'ioredis' }), ' with ioredis')
    case 'subscriptions':
      return bySubscriptions(seeds)
    case 'subscriptions of node-redis':
      return bySubscriptions(seeds, 'node-redis')
    case 'test':
      throw new Error(`${name} is for a test, and not for the simulator`)
  }
}

Error.stackTraceLimit = 0
process.on('message', (task) => {
  void (async () => {
    process.send!(await trial(task as Task))
    process.disconnect()
  })()
})
