// npm run bench -- [--quick] [--json FILE] [question numbers]
// A full run is kept in results/latest.json, and the chart and the figures in the documents are made from it.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { stopWorkers } from './contest.mjs'
import { oneNode } from './questions/1-one-node.mjs'
import { fiveNodes } from './questions/2-five-nodes.mjs'
import { inFlight } from './questions/3-in-flight.mjs'
import { frozenNode } from './questions/4-frozen-node.mjs'
import { waiters } from './questions/5-waiters.mjs'
import { processes } from './questions/6-processes.mjs'
import { heldLeases } from './questions/7-held-leases.mjs'
import { growth } from './questions/8-growth.mjs'
import { readmeFigures } from './figures.mjs'
import { publish } from './publish.mjs'
import { printQuestion, printSummary } from './report.mjs'
import { startServers, stopServers } from './servers.mjs'

const questions = [oneNode, fiveNodes, inFlight, frozenNode, waiters, processes, heldLeases, growth]

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: 'boolean', default: false }, json: { type: 'string' } },
})
const unknown = positionals.filter((text) => !questions.some(({ number }) => String(number) === text))
if (unknown.length > 0) throw new RangeError(`question: expected numbers from 1 to 8, got ${unknown.join(', ')}`)

/** All questions at full length: only that is kept and shown. */
const isWhole = positionals.length === 0 && !options.quick

for (const signal of ['SIGINT', 'SIGTERM']) {
  // Whatever is under way; the servers and workers are ended by what runs on exit.
  process.once(signal, () => process.exit(130))
}

try {
  const report = await run(
    questions.filter(({ number }) => positionals.length === 0 || positionals.includes(`${number}`)),
  )
  printSummary(report)
  const kept = options.json ?? (isWhole ? new URL('results/latest.json', import.meta.url) : undefined)
  if (kept !== undefined) writeFileSync(kept, `${JSON.stringify(report, null, 2)}\n`)
  if (isWhole) {
    process.stdout.write(`\n${readmeFigures(report)}\n`)
    if (options.json === undefined) for (const path of publish()) process.stdout.write(`${path} written\n`)
  }
} finally {
  stopWorkers()
  await stopServers()
}
// Peers may have left timers behind.
process.exit()

async function run(chosen) {
  const report = {
    date: new Date().toISOString().slice(0, 10),
    commit: commit(),
    node: process.version,
    cpu: `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}`,
    quick: options.quick,
    questions: [],
  }
  // New ones for every question: nobody inherits the keys, the scripts or the connections of the question before.
  for (const { number, title, run } of chosen) {
    const servers = await startServers(number === 8 ? 9 : 5)
    report.redis ??= await versionOf(servers[0])
    const began = performance.now()
    const answer = { number, title, load: loadavg()[0], ...(await run({ servers, quick: options.quick })) }
    answer.seconds = Math.round((performance.now() - began) / 1000)
    report.questions.push(answer)
    printQuestion(answer)
    await stopServers()
  }
  return report
}

/** Of what is measured; a working copy with changes is not that commit, and says so. */
function commit() {
  const changed = git('status', '--porcelain', '--', '../src', '.') !== ''
  return `${git('rev-parse', '--short=7', 'HEAD')}${changed ? ' with changes' : ''}`
}

function git(...args) {
  return execFileSync('git', args, { cwd: import.meta.dirname, encoding: 'utf8' }).trim()
}

async function versionOf({ control }) {
  return /redis_version:(\S+)/.exec(await control.info('server'))?.[1]
}
