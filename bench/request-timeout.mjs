// What a shorter requestTimeout costs and gains on a quorum: npm run build && node bench/request-timeout.mjs [sections]
// Three Redis servers of its own, one section after the other, a ttl of 10 s; then the same with one server frozen. Where other work goes
// on beside it, a short time-out counts servers as failed that are only late. Nothing is kept in a file.
import { loadavg } from 'node:os'
import { Redis } from 'ioredis'
import { createLocks } from '../dist/index.cjs'
import { redlock } from '../dist/engines/redis/index.cjs'
import { startServers, stopServers } from './servers.mjs'

const SECTIONS = Number(process.argv[2] ?? 2000)
const servers = await startServers(3)
const clients = servers.map(({ port }) => new Redis(port, '127.0.0.1').on('error', () => undefined))

async function sections(requestTimeout, count) {
  let late = 0
  let failed = 0
  const observe = ({ type, outcome }) => {
    if (type === 'roundTrip' && outcome !== 'answered') late++
  }
  const options = requestTimeout === undefined ? {} : { requestTimeout }
  const locks = createLocks(redlock(clients, options), { ttl: '10s', observe })
  // The first one pays for scripts, and for letting the nodes vote.
  const first = await locks.acquire('first', { wait: '30s' }).catch(() => null)
  await first?.release().catch(() => undefined)
  late = 0
  const times = []
  for (let section = 0; section < count; section++) {
    const began = performance.now()
    const lease = await locks.tryAcquire(`order:${section}`).catch(() => null)
    times.push(performance.now() - began)
    if (lease === null) failed++
    else await lease.release().catch(() => failed++)
  }
  await locks.close()
  times.sort((some, other) => some - other)
  const at = (part) => Number(times[Math.floor(part * (times.length - 1))].toFixed(2))
  return { failed, late, p50: at(0.5), p99: at(0.99), worst: at(1) }
}

const timeouts = ['5ms', '50ms', undefined]
const rows = []
for (const timeout of timeouts) {
  rows.push({ timeout: timeout ?? 'default (1s)', servers: 'all answer', ...(await sections(timeout, SECTIONS)) })
}
servers[2].freeze()
for (const timeout of timeouts.slice(1)) {
  rows.push({ timeout: timeout ?? 'default (1s)', servers: 'one is frozen', ...(await sections(timeout, 200)) })
}
servers[2].thaw()
console.table(rows)
console.log(`load ${loadavg()[0].toFixed(1)}, ${SECTIONS} sections, 200 with a frozen server`)
for (const client of clients) client.disconnect()
await stopServers()
