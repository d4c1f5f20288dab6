// npm run bench -- [--quick] [--baseline DIR] [--json FILE] [question numbers]
// A full run is kept in results/latest.json, and the chart and the figures in the documents are made from it.
import { writeFileSync } from 'node:fs'
import { cpus, getPriority, loadavg } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { commitOf, loadRingfence } from './builds.mjs'
import { stopChildren } from './child.mjs'
import { bare, defaultPeers, peers, ringfence, ringfenceFrom, scriptsAlone } from './libraries.mjs'
import { oneNode } from './questions/1-one-node.mjs'
import { promises } from './questions/10-promises.mjs'
import { fiveNodes } from './questions/2-five-nodes.mjs'
import { inFlight } from './questions/3-in-flight.mjs'
import { frozenNode } from './questions/4-frozen-node.mjs'
import { waiters } from './questions/5-waiters.mjs'
import { processes } from './questions/6-processes.mjs'
import { heldLeases } from './questions/7-held-leases.mjs'
import { growth } from './questions/8-growth.mjs'
import { cold } from './questions/9-cold.mjs'
import { publish } from './publish.mjs'
import { asJson, printQuestion, printSummary } from './report.mjs'
import { startServers, stopServers } from './servers.mjs'

const questions = [oneNode, fiveNodes, inFlight, frozenNode, waiters, processes, heldLeases, growth, cold, promises]

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    baseline: { type: 'string' },
  },
})
const unknown = positionals.filter((text) => !questions.some(({ number }) => String(number) === text))
if (unknown.length > 0)
  throw new RangeError(`question: expected numbers from 1 to ${questions.length}, got ${unknown.join(', ')}`)

/** All questions at full length: only that is kept and shown. */
const isWhole = positionals.length === 0 && !options.quick

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  // Whatever is under way; the servers and workers are ended by what runs on exit.
  process.once(signal, () => process.exit(130))
}

try {
  const report = await run(
    questions.filter(({ number }) => positionals.length === 0 || positionals.includes(`${number}`)),
  )
  printSummary(report)
  const kept = options.json ?? (isWhole ? new URL('results/latest.json', import.meta.url) : undefined)
  if (kept !== undefined) writeFileSync(kept, asJson(report))
  if (isWhole && options.json === undefined) {
    for (const file of publish()) process.stdout.write(`${file} written\n`)
  }
} finally {
  stopChildren()
  await stopServers()
}
// Peers may have left timers behind.
process.exit()

async function run(chosen) {
  const baseline = await baselineOf(options.baseline)
  const report = {
    format: 2,
    date: new Date().toISOString().slice(0, 10),
    commit: commitOf(path.dirname(import.meta.dirname), 'src', 'bench', ':!bench/results'),
    ...(baseline === undefined ? {} : { baseline: baseline.name }),
    node: process.version,
    redis: '',
    cpu: `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}`,
    nice: getPriority(),
    quick: options.quick,
    questions: [],
  }
  const builds = [ringfence, ...(baseline === undefined ? [] : [baseline])]
  // The short version has the two that are fastest without contention.
  const some = ({ name }) => !options.quick || /^(redlock 5 beta|redis-semaphore)/.test(name)
  const waiting = [bare, ...builds, ...peers.filter(some)]
  const free = [bare, ...builds, scriptsAlone, ...peers.filter(some)]
  // New ones for every question: nobody inherits the keys, the scripts or the connections of the question before.
  for (const { number, title, servers: count = 5, run } of chosen) {
    const servers = await startServers(count)
    report.redis ||= await versionOf(servers[0])
    const [began, load] = [performance.now(), loadavg()[0]]
    const answer = await run({
      servers,
      quick: options.quick,
      free,
      waiting,
      withDefaults: defaultPeers.filter(some),
      baseline,
    })
    const seconds = Math.round((performance.now() - began) / 1000)
    const question = { number, title, load, loadAfter: loadavg()[0], seconds, ...answer }
    report.questions.push(question)
    printQuestion(question)
    await stopServers()
  }
  return report
}

/** Another build of ringfence, for all questions: a checkout of another commit, built. */
async function baselineOf(folder) {
  if (folder === undefined) return undefined
  const from = path.resolve(folder)
  try {
    await loadRingfence(from)
  } catch (cause) {
    throw new Error(
      `--baseline: expected a checkout with a build in dist, got ${folder}; run \`npm run build\` there`,
      { cause },
    )
  }
  return ringfenceFrom(`ringfence at ${commitOf(from, 'src')}`, from)
}

async function versionOf({ control }) {
  return /redis_version:(\S+)/.exec(await control.info('server'))?.[1]
}
