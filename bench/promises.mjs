// node bench/promises.mjs [--library NAME] [--nodes N] [--client ioredis | node-redis] [--import src | DIR]
// How many promises a section makes, uncontended and one at a time: later on, in the mean of the first 200 of a process, and
// of ringfence by `using`. It is a count and has no noise, so a test can hold it to a bound. --import chooses the ringfence: the
// package (that is dist), `src`, or another checkout with its own dist.
import { createHook } from 'node:async_hooks'
import { parseArgs } from 'node:util'
import { createClient } from 'redis'
import { askOnce, stopChildren } from './child.mjs'
import { connect, libraryOf } from './libraries.mjs'
import { median } from './rounds.mjs'
import { startServers, stopServers } from './servers.mjs'

/** With them is counted what is made once a process, and once a connection. */
const FIRST_SECTIONS = 200
/** After those. Counted one by one, and the median is told: on five nodes one in some hundred makes a few more. */
const SECTIONS = 300
const TTL_MS = 30_000

/**
 * In a process of its own, in which nothing else makes promises.
 *
 * @param {object} plan
 * @param {Partial<import('./libraries.mjs').Library>} [plan.library] by name; for another build of ringfence with `from`
 * @param {readonly number[]} plan.ports of the servers, one or more
 * @param {'ioredis' | 'node-redis'} [plan.client]
 * @returns {Promise<{ section: number, first: number, using: number | undefined }>} promises a section, the caller's own two
 *   awaits among them (one with `using`)
 */
export function promisesOf({ library = { name: 'ringfence' }, ports, client = 'ioredis' }) {
  return askOnce('promises', { library, ports, client }, 60_000)
}

/** The child's part: counts in this process. */
export async function countHere({ library, ports, client }) {
  const clients = client === 'ioredis' ? await connect(ports) : await connectNodeRedis(ports)
  const lock = await libraryOf(library).open(clients)
  let promises = 0
  const hook = createHook({
    init(_id, type) {
      if (type === 'PROMISE') promises++
    },
  }).enable()
  const counts = []
  for (let i = 0; i < FIRST_SECTIONS + SECTIONS; i++) {
    const before = promises
    const handle = await lock.acquire(`promises:${process.pid}:${i % 16}`, TTL_MS)
    await lock.release(handle)
    counts.push(promises - before)
  }
  const before = promises
  for (let i = 0; i < SECTIONS; i++) await lock.using?.(`promises:${process.pid}:${i % 16}`, TTL_MS)
  const using = lock.using && (promises - before) / SECTIONS
  hook.disable()
  const first = counts.splice(0, FIRST_SECTIONS).reduce((sum, count) => sum + count, 0) / FIRST_SECTIONS
  return { section: median(counts), first, using }
}

async function connectNodeRedis(ports) {
  const clients = ports.map((port) => createClient({ url: `redis://127.0.0.1:${port}` }))
  for (const client of clients) client.on('error', () => undefined)
  await Promise.all(clients.map((client) => client.connect()))
  return clients
}

if (import.meta.filename === process.argv[1]) {
  const { values } = parseArgs({
    options: {
      library: { type: 'string', default: 'ringfence' },
      nodes: { type: 'string', default: '1' },
      client: { type: 'string', default: 'ioredis' },
      import: { type: 'string' },
    },
  })
  process.once('SIGINT', () => process.exit(130))
  process.once('SIGTERM', () => process.exit(143))
  try {
    const servers = await startServers(Number(values.nodes))
    const library = { name: values.library, ...(values.import === undefined ? {} : { from: values.import }) }
    const client = values.client === 'node-redis' ? 'node-redis' : 'ioredis'
    const promises = await promisesOf({ library, client, ports: servers.map(({ port }) => port) })
    process.stdout.write(`${JSON.stringify(promises)}\n`)
  } finally {
    stopChildren()
    await stopServers()
  }
}
