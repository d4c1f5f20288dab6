import { setTimeout as sleep } from 'node:timers/promises'
import { Child } from '../child.mjs'
import { judged } from '../goals.mjs'
import { bare, requests, ringfence } from '../libraries.mjs'
import { of } from '../ratios.mjs'
import { median, Rounds } from '../rounds.mjs'
import { counts, emptyServers, resetCounts, serverCpu } from '../servers.mjs'

/** What does it cost to keep 10,000 locks? Every library with its own automatic renewal, all with the same ttl. */
export const heldLeases = {
  number: 7,
  title: '10,000 held leases with renewal, five nodes',
  async run({ servers, quick, waiting, baseline }) {
    const five = servers.slice(0, 5)
    const plan = { leases: quick ? 2_000 : 10_000, ttlMs: quick ? 1_000 : 6_000, ttls: quick ? 1 : 2 }
    const short = ['ringfence', 'redis-semaphore', baseline?.name]
    const who = waiting.filter((each) => each !== bare && (!quick || short.includes(each.name)))
    const kept = new Rounds(
      'client CPU',
      who.map(({ name }) => name),
    )
    const outcomes = new Map(who.map((library) => [library, []]))
    // A process each, one after the other; the builds of ringfence, which are compared most closely, twice.
    for (let round = 0; round < (quick ? 1 : 2); round++) {
      const cpu = new Map()
      for (const library of who) {
        if (library.peer && round > 0) continue
        const outcome = await held(library, five, plan)
        outcomes.get(library)?.push(outcome)
        cpu.set(library.name, outcome.clientCpu)
      }
      kept.add(cpu)
    }
    const rows = who.map((library) => row(library.name, outcomes.get(library)))
    const semaphore = of(rows, 'redis-semaphore')
    for (const each of rows) each.toSemaphore = each.requestsPerSecond / semaphore.requestsPerSecond
    const toBaseline = baseline && { base: baseline.name, ...kept.ratio(ringfence.name, baseline.name) }
    return {
      tables: [{ title: `${plan.leases} leases, ttl ${plan.ttlMs / 1000} s`, columns: COLUMNS, rows, rounds: kept }],
      goals: judged(7, { '7-cpu': toBaseline }),
    }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'clientCpu', title: 'client CPU', share: true },
  { key: 'serverCpu', title: 'server CPU', share: true },
  { key: 'requestsPerSecond', title: 'requests/s', digits: 0 },
  { key: 'commandsPerSecond', title: 'with scripts/s', digits: 0 },
  { key: 'lost', title: 'lost', digits: 0 },
  { key: 'toSemaphore', title: 'requests to redis-semaphore', ratio: true },
  { key: 'note', title: '' },
]

function row(name, outcomes) {
  const failed = outcomes.find(({ note }) => note !== undefined)
  if (failed !== undefined) return { library: name, ...failed }
  const middle = (key) => median(outcomes.map((each) => each[key]))
  const figures = ['clientCpu', 'serverCpu', 'requestsPerSecond', 'commandsPerSecond', 'lost']
  return { library: name, ...Object.fromEntries(figures.map((key) => [key, middle(key)])) }
}

/** The child's CPU time is its own: nothing of the benchmark runs in it meanwhile. */
async function held(library, servers, { leases, ttlMs, ttls }) {
  await emptyServers(servers)
  const child = new Child()
  try {
    await child.ask('hold', { library, ports: servers.map(({ port }) => port), leases, ttlMs }, 60_000)
    await sleep(ttlMs / 2)
    await resetCounts(servers)
    const [began, before] = [performance.now(), await serverCpu(servers)]
    const clientCpu = await child.ask('keep', { library, ms: ttlMs * ttls }, ttlMs * ttls + 30_000)
    const seconds = (performance.now() - began) / 1000
    const serverSeconds = (await serverCpu(servers)) - before
    const calls = await counts(servers)
    return {
      clientCpu,
      serverCpu: serverSeconds / seconds,
      requestsPerSecond: requests(library, calls) / seconds,
      commandsPerSecond: [...calls.values()].reduce((sum, number) => sum + number, 0) / seconds,
      lost: leases - (await stillThere(servers)),
    }
  } catch (error) {
    return { note: `failed: ${error.message.split('\n')[0]}` }
  } finally {
    child.kill()
  }
}

/** On a majority. Whatever a library calls its keys, the resource is in them; ringfence's counters are not locks. */
async function stillThere(servers) {
  /** @type {Map<string, number>} */
  const nodes = new Map()
  for (const { control } of servers) {
    const keys = await control.keys('*held:*')
    for (const key of keys) if (!key.startsWith('ringfence:')) nodes.set(key, (nodes.get(key) ?? 0) + 1)
  }
  return [...nodes.values()].filter((number) => number > servers.length / 2).length
}
