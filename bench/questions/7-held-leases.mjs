import { setTimeout as sleep } from 'node:timers/promises'
import { of, target } from '../compare.mjs'
import { bare, connect, libraries, requests } from '../libraries.mjs'
import { counts, emptyServers, resetCounts, serverCpu } from '../servers.mjs'

/** What does it cost to keep 10,000 locks? Every library with its own automatic renewal, all with the same ttl. */
export const heldLeases = {
  number: 7,
  title: '10,000 held leases with renewal, one node',
  async run({ servers, quick }) {
    const plan = { leases: 10_000, ttlMs: quick ? 2_000 : 6_000, ttls: quick ? 1.6 : 3 }
    const rows = []
    const short = ['ringfence', 'redis-semaphore']
    for (const library of libraries.filter((each) => each !== bare && (!quick || short.includes(each.name)))) {
      rows.push({ library: library.name, ...(await held(library, servers.slice(0, 1), plan)) })
    }
    const semaphore = of(rows, 'redis-semaphore')
    for (const row of rows) row.toSemaphore = row.requestsPerSecond / semaphore.requestsPerSecond
    const { toSemaphore } = of(rows, 'ringfence')
    return {
      tables: [{ title: `ttl ${plan.ttlMs / 1000} s`, columns: COLUMNS, rows }],
      targets: [target("of redis-semaphore's commands per second", toSemaphore, { atMost: 0.1 })],
    }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'requestsPerSecond', title: 'requests/s', digits: 0 },
  { key: 'commandsPerSecond', title: 'with scripts/s', digits: 0 },
  { key: 'clientCpu', title: 'client CPU', share: true },
  { key: 'serverCpu', title: 'server CPU', share: true },
  { key: 'lost', title: 'lost', digits: 0 },
  { key: 'toSemaphore', title: 'to redis-semaphore', ratio: true },
  { key: 'note', title: '' },
]

/** Acquired over the first ttl, as in life, so that renewals are not all due at the same moment. */
async function held(library, servers, { leases, ttlMs, ttls }) {
  await emptyServers(servers)
  const clients = await connect(servers.map(({ port }) => port))
  const lock = library.open(clients)
  const letGo = []
  try {
    const parts = 50
    for (let part = 0; part < parts; part++) {
      const names = Array.from({ length: leases / parts }, (_, i) => `held:${part}:${i}`)
      const began = performance.now()
      letGo.push(...(await Promise.all(names.map((name) => lock.hold(name, ttlMs)))))
      await sleep(Math.max(0, (ttlMs * 0.8) / parts - (performance.now() - began)))
    }
    await sleep(ttlMs / 2)
    await resetCounts(servers)
    const [began, cpu, serversBefore] = [performance.now(), process.cpuUsage(), await serverCpu(servers)]
    await sleep(ttlMs * ttls)
    const seconds = (performance.now() - began) / 1000
    const { user, system } = process.cpuUsage(cpu)
    const serverSeconds = (await serverCpu(servers)) - serversBefore
    const calls = await counts(servers)
    return {
      requestsPerSecond: requests(library, calls) / seconds,
      commandsPerSecond: [...calls.values()].reduce((sum, number) => sum + number, 0) / seconds,
      clientCpu: (user + system) / 1e6 / seconds,
      serverCpu: serverSeconds / seconds,
      lost: leases - (await stillThere(servers[0].control)),
    }
  } catch (error) {
    return { note: `failed: ${error.message}` }
  } finally {
    await Promise.allSettled(letGo.map((release) => release()))
    await lock.close()
    for (const client of clients) client.disconnect()
  }
}

/** Whatever a library calls its keys, the resource is in them; ringfence's counters are not locks. */
async function stillThere(control) {
  const keys = await control.keys('*held:*')
  return keys.filter((key) => !key.startsWith('ringfence:')).length
}
