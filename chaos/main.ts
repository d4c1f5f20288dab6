import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { openNetwork } from '../harness/faults/network.ts'
import { commit } from '../sim/commit.ts'
import { printed, type Report } from './report.ts'
import { keep } from './results.ts'
import { ARENAS, run } from './run.ts'

const USAGE = `npm run chaos -- [options]
  --engine NAME   ${Object.keys(ARENAS).join(', ')} or all (default redlock)
  --seconds N     how long (default 60)
  --seed N        of the faults: the same ones in the same order, as far as real processes can (default: a new one)
  --runs N        as many, with this seed and the next ones (default 1)
  --keep          writes each run into chaos/results.json, and the table of docs/testing/runs.md
  --json FILE     the report for machines

A night: npm run chaos -- --engine all --seconds 60 --runs 5 --keep`

// Awaited while the module loads: what loads it can load no more afterwards, and the file engine loads its library late.
process.exitCode = await main()

/** Returns the exit code: 0 if no run has failed, 1 if one has, 2 for wrong usage, 130 after an interruption. */
async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      engine: { type: 'string', default: 'redlock' },
      seconds: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      runs: { type: 'string', default: '1' },
      keep: { type: 'boolean', default: false },
      json: { type: 'string' },
      help: { type: 'boolean' },
    },
  })
  const { engine, seed, json } = values
  const [seconds, runs] = [Number(values.seconds), Number(values.runs)]
  const engines = engine === 'all' ? Object.keys(ARENAS) : [engine]
  const isWrong =
    !(seconds > 0 && seconds <= 86_400) ||
    !(Number.isInteger(runs) && runs > 0) ||
    engines.some((name) => !Object.hasOwn(ARENAS, name))
  if (values.help === true || isWrong) {
    console.log(USAGE)
    return isWrong ? 2 : 0
  }
  // Everything that runs is ended in order; a second interruption leaves that to the kernel, which all is tethered by.
  const interruption = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => interruption.abort())
  // In a namespace of its own: see main.mjs.
  if (process.env['RINGFENCE_OWN_USERS'] === 'yes') {
    for (const what of openNetwork()) console.log(`this machine cannot ${what}`)
  }
  const reports: Report[] = []
  try {
    for (const name of engines) {
      for (const own of seeds(seed, runs)) {
        console.log(`${name}, ${seconds} s, seed ${own}, commit ${commit()}`)
        const report = await run({ engine: name, seconds, seed: own, tell: console.log, signal: interruption.signal })
        console.log(`\n${printed(report)}\n`)
        reports.push(report)
        if (values.keep) keep(report)
      }
    }
  } catch (error) {
    if (!interruption.signal.aborted) throw error
    return 130
  }
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ commit: commit(), reports }, undefined, 2)}\n`)
  return reports.some(({ failures }) => failures.length > 0) ? 1 : 0
}

/** A seed may be any text; what follows a number is the next number. */
function seeds(first: string, count: number): string[] {
  const next = (more: number): string => (/^\d+$/.test(first) ? String(Number(first) + more) : `${first}-${more}`)
  return Array.from({ length: count }, (_, more) => (more === 0 ? first : next(more)))
}
