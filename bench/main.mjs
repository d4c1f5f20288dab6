// npm run bench -- [--quick] [--json FILE] [question numbers]
import { parseArgs } from 'node:util'
import { fiveNodes } from './questions/2-five-nodes.mjs'
import { inFlight } from './questions/3-in-flight.mjs'
import { waiters } from './questions/5-waiters.mjs'
import { processes } from './questions/6-processes.mjs'
import { frozenNode } from './questions/4-frozen-node.mjs'
import { heldLeases } from './questions/7-held-leases.mjs'
import { growth } from './questions/8-growth.mjs'
import { oneNode } from './questions/1-one-node.mjs'
import { printTable, printTarget } from './report.mjs'
import { startServers, stopServers } from './servers.mjs'

const { values: options, positionals } = parseArgs({ allowPositionals: true, options: { quick: { type: 'boolean', default: false }, json: { type: 'string' } } })
const questions = [oneNode, fiveNodes, inFlight, frozenNode, waiters, processes, heldLeases, growth]
const servers = await startServers(9)
for (const q of questions) {
  if (positionals.length && !positionals.includes(String(q.number))) continue
  console.log(q.number, q.title)
  const r = await q.run({ servers, quick: options.quick })
  r.tables.forEach(printTable)
  r.targets.forEach(printTarget)
}
await stopServers()
process.exit(0)
