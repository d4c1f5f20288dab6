import { parseArgs } from 'node:util'
import { failed } from '../sim/checkers/all.ts'
import { commit } from '../sim/commit.ts'
import { print, timeline } from '../sim/timeline.ts'
import { useMemory } from './in-memory.ts'
import { drawPlan } from './plan.ts'
import { run } from './run.ts'
import { TARGETS } from './targets/all.ts'
import { told } from './told.ts'

const USAGE = `npm run schedules -- [options]
  --engine NAME      one of ${Object.keys(TARGETS).join(', ')}, or all (default)
  --seed N           the first seed (default 1); without --seeds only that one, with all that happens
  --seeds M          how many (default 200)`

const { values } = parseArgs({
  options: {
    engine: { type: 'string', default: 'all' },
    seed: { type: 'string' },
    seeds: { type: 'string' },
    help: { type: 'boolean' },
  },
})

if (values.help === true) console.log(USAGE)
else process.exitCode = await main()

async function main(): Promise<number> {
  const names = values.engine === 'all' ? Object.keys(TARGETS) : [values.engine]
  const first = Number(values.seed ?? 1)
  const seeds = Number(values.seeds ?? (values.seed === undefined ? 200 : 1))
  let wrong = 0
  console.log(`commit ${commit()}`)
  useMemory()
  for (const name of names) {
    const open = TARGETS[name]
    if (open === undefined) {
      console.error(`no schedules for the engine '${name}'\n\n${USAGE}`)
      return 2
    }
    await using target = await open()
    const beganMs = performance.now()
    let requests = 0
    for (let seed = first; seed < first + seeds; seed++) {
      const { stage, verdicts } = await run(drawPlan(seed, target.bounds), target)
      requests += stage.history.of('exec').length
      if (failed(verdicts).length > 0) {
        wrong++
        console.log(told(name, seed, stage.history, verdicts))
      } else if (values.seed !== undefined && seeds === 1)
        console.log(print(timeline(stage.history, { owners: ['*'] })))
    }
    const seconds = ((performance.now() - beganMs) / 1000).toFixed(1)
    console.log(`${name}: ${seeds} schedules, ${requests} requests, ${seconds} s`)
  }
  console.log(`${wrong} failed`)
  return wrong === 0 ? 0 : 1
}
