import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { commit } from '../sim/commit.ts'
import { printed, type Report } from './report.ts'
import { ARENAS, run } from './run.ts'

const USAGE = `npm run chaos -- [options]
  --engine NAME   ${Object.keys(ARENAS).join(', ')} or all (default redlock)
  --seconds N     how long (default 60)
  --seed N        of the faults: the same ones in the same order, as far as real processes can (default: a new one)
  --json FILE     the report for machines`

// Awaited while the module loads: what loads it can load no more afterwards, and the file engine loads its library late.
process.exitCode = await main()

/** Returns the exit code: 0 if no run has failed, 1 if one has, 2 for wrong usage, 130 after an interruption. */
async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      engine: { type: 'string', default: 'redlock' },
      seconds: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      json: { type: 'string' },
      help: { type: 'boolean' },
    },
  })
  const { engine, seed, json } = values
  const seconds = Number(values.seconds)
  const engines = engine === 'all' ? Object.keys(ARENAS) : [engine]
  const isWrong = !(seconds > 0 && seconds <= 86_400) || engines.some((name) => !Object.hasOwn(ARENAS, name))
  if (values.help === true || isWrong) {
    console.log(USAGE)
    return isWrong ? 2 : 0
  }
  // Everything that runs is ended in order; a second interruption leaves that to the kernel, which all is tethered by.
  const interruption = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => interruption.abort())
  const reports: Report[] = []
  try {
    for (const name of engines) {
      console.log(`${name}, ${seconds} s, seed ${seed}, commit ${commit()}`)
      const report = await run({ engine: name, seconds, seed, tell: console.log, signal: interruption.signal })
      console.log(`\n${printed(report)}\n`)
      reports.push(report)
    }
  } catch (error) {
    if (!interruption.signal.aborted) throw error
    return 130
  }
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ commit: commit(), reports }, undefined, 2)}\n`)
  return reports.some(({ failures }) => failures.length > 0) ? 1 : 0
}
