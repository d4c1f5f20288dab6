// node bench/sweep.mjs [--quick]
// Which retry delay serves each of the others best? Every delay under the loads of questions 5 and 6; the result is kept in
// results/sweep.json, and the benchmark uses the best ones. About 8 minutes.
import { writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { commitOf } from './builds.mjs'
import { stopChildren } from './child.mjs'
import { Contest } from './contest.mjs'
import { libraryOf, peers } from './libraries.mjs'
import { publish } from './publish.mjs'
import { asJson } from './report.mjs'
import { median, shuffled } from './rounds.mjs'
import { startServers, stopServers } from './servers.mjs'

const DELAYS = [2, 5, 10, 25, 50, 100, 200]
const BOUND_MS = 4_000

const { values: options } = parseArgs({ options: { quick: { type: 'boolean', default: false } } })
const delays = options.quick ? [10, 100] : DELAYS

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(130))

try {
  const report = {
    date: new Date().toISOString().slice(0, 10),
    commit: commitOf(path.dirname(import.meta.dirname), 'src', 'bench', ':!bench/results'),
    load: loadavg()[0],
    rows: [],
  }
  for (const nodes of [1, 5]) {
    for (const processes of [1, 4]) report.rows.push(...(await tried(nodes, processes, 200 / processes)))
  }
  if (!options.quick) {
    writeFileSync(new URL('results/sweep.json', import.meta.url), asJson(report))
    for (const file of publish()) process.stdout.write(`${file} written\n`)
  }
} finally {
  stopChildren()
  await stopServers()
}
process.exit()

/** All delays of all libraries in turns. */
async function tried(nodes, processes, waiters) {
  const servers = await startServers(nodes)
  const contest = new Contest(servers, processes)
  const variants = peers.flatMap(({ name }) => delays.map((retryMs) => libraryOf({ name, retryMs })))
  const outcomes = new Map(variants.map((variant) => [variant, []]))
  for (const variant of variants) await contest.open(variant, 100)
  for (let round = 0; round < (options.quick ? 1 : 2); round++) {
    for (const variant of shuffled(variants))
      outcomes.get(variant)?.push(await contest.race(variant, waiters, BOUND_MS))
  }
  contest.close()
  await stopServers()
  return variants.map((variant) => {
    const rates = outcomes.get(variant).map(({ perSecond }) => perSecond)
    const row = {
      library: variant.name,
      processes,
      waiters,
      nodes,
      retryMs: variant.retryMs,
      perSecond: Math.round(median(rates)),
    }
    const unfinished = outcomes.get(variant).find((outcome) => outcome.unfinished)?.unfinished
    const note = unfinished === undefined ? {} : { sections: unfinished.sections }
    process.stdout.write(`${JSON.stringify({ ...row, ...note })}\n`)
    return { ...row, ...note }
  })
}
