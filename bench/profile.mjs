// node bench/profile.mjs [LOAD] [LIBRARY …] [--seconds N] [--baseline DIR] [--out DIR]
// What a section costs and where its time and its memory go, after a warm-up: one library after the other on the same servers,
// with what they cost side by side, then the functions of the first. LOAD: 1 (one at a time, one node), 2 (five nodes),
// 3 (64 in flight, one node), 3-five, 5 (200 waiters, one node), 5-five; 9 (the first 200 sections of a process, no warm-up) and 9-five,
// of 12 processes each. With --out the profiles are written there, for Chrome's developer tools; of 9 there are none.
import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import path from 'node:path'
import { PerformanceObserver } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { askOnce, stopChildren } from './child.mjs'
import { connect, libraryOf, ringfenceFrom } from './libraries.mjs'
import { TTL_MS, uncontended, WARM_SECTIONS } from './measure.mjs'
import { nameOf, placeOf, sampled, sizes, summed } from './sampling.mjs'
import { counts, emptyServers, resetCounts, serverCpu, startServers, stopServers } from './servers.mjs'

const LINES = 30
/** Of question 9: one after the other, by turns of the libraries. Half of them are sampled, which costs time. */
const PROCESSES = 24
const FIRST_SECTIONS = 200
const LOADS = {
  1: [free(1), 1],
  2: [free(1), 5],
  3: [free(64), 1],
  '3-five': [free(64), 5],
  5: [contended, 1],
  '5-five': [contended, 5],
  9: [undefined, 1],
  '9-five': [undefined, 5],
}

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: 'string', default: '4' }, baseline: { type: 'string' }, out: { type: 'string' } },
})
const [question = '1', ...names] = positionals
if (!(question in LOADS))
  throw new RangeError(`load: expected one of ${Object.keys(LOADS).join(', ')}, got ${question}`)
const [load, nodes] = LOADS[question]
const ms = Number(options.seconds) * 1000
const chosen = (names.length === 0 ? ['ringfence', 'bare commands'] : names).map((name) => libraryOf({ name }))
if (options.baseline !== undefined) chosen.push(ringfenceFrom('ringfence, baseline', path.resolve(options.baseline)))

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130))

try {
  const servers = await startServers(nodes)
  const results = load === undefined ? await firstSections(servers) : []
  for (const library of load === undefined ? [] : chosen) {
    await emptyServers(servers)
    const clients = await connect(servers.map(({ port }) => port))
    const lock = await library.open(clients)
    for (let sections = 0; sections < WARM_SECTIONS;) sections += await load(lock, 200)
    results.push({ name: library.name, cost: await cost(servers, lock), ...(await profiles(lock, library.name)) })
    for (const client of clients) client.disconnect()
    await lock.close()
  }
  printSideBySide('µs a section', results, ({ cost }) => cost)
  printSideBySide('µs a section, by the place where they were sampled', results, ({ places }) => places)
  if (load !== undefined) printSideBySide('bytes allocated a section, by place', results, ({ bytes }) => bytes)
  printHot(`µs a section, functions of ${results[0].name}`, results[0].functions)
  if (load !== undefined) printHot(`bytes a section, functions of ${results[0].name}`, results[0].allocating)
} finally {
  stopChildren()
  await stopServers()
}
process.exit()

/** Each in a new process. */
async function firstSections(servers) {
  const ports = servers.map(({ port }) => port)
  const results = chosen.map((library) => ({ library, name: library.name, costs: [], all: [], hot: [] }))
  for (let process = 0; process < PROCESSES; process++) {
    for (const { library, costs, all, hot } of results) {
      const plan = { library: { name: library.name, from: library.from }, ports, sections: FIRST_SECTIONS }
      const answer = await askOnce(process % 2 === 0 ? 'firstCost' : 'firstSampled', plan, 60_000)
      if (process % 2 === 0) costs.push(answer.cost)
      else {
        all.push(answer.places)
        hot.push(answer.functions)
      }
    }
  }
  return results.map(({ name, costs, all, hot }) => ({
    name,
    cost: mean(costs),
    places: mean(all),
    functions: mean(hot),
  }))
}

/** Of lists of names with figures; the highest first. */
function mean(lists) {
  const sums = new Map()
  for (const [name, figure] of lists.flat()) sums.set(name, (sums.get(name) ?? 0) + figure / lists.length)
  return new Map([...sums].sort((a, b) => b[1] - a[1]))
}

/** Without a profiler. CPU times are the kernel's; what a client waits is the rest. */
async function cost(servers, lock) {
  let gcMs = 0
  const observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) gcMs += duration
  })
  observer.observe({ entryTypes: ['gc'] })
  await resetCounts(servers)
  const serversBefore = await serverCpu(servers)
  const [before, began] = [process.cpuUsage(), performance.now()]
  const sections = await load(lock, ms)
  const { user, system } = process.cpuUsage(before)
  const tookMs = performance.now() - began
  const serversUs = ((await serverCpu(servers)) - serversBefore) * 1e6
  observer.disconnect()
  const calls = [...(await counts(servers))].filter(([, number]) => number >= sections / 100)
  return new Map([
    ['time', (tookMs * 1000) / sections],
    ['client CPU, user', user / sections],
    ['client CPU, kernel', system / sections],
    ['of the client: garbage collection', (gcMs * 1000) / sections],
    ['servers CPU', serversUs / sections],
    ...calls.map(([command, number]) => /** @type {const} */ ([`calls of ${command}`, number / sections])),
  ])
}

async function profiles(lock, name) {
  const { profile, places, functions } = await sampled(() => load(lock, ms))
  const session = new Session()
  session.connect()
  await session.post('HeapProfiler.startSampling', {
    samplingInterval: 4096,
    includeObjectsCollectedByMinorGC: true,
    includeObjectsCollectedByMajorGC: true,
  })
  const weighed = await load(lock, ms)
  const heap = await session.post('HeapProfiler.stopSampling')
  session.disconnect()
  if (options.out !== undefined) {
    const file = path.join(options.out, `${name.replaceAll(/\W+/g, '-')}-question-${question}`)
    writeFileSync(`${file}.cpuprofile`, JSON.stringify(profile))
    writeFileSync(`${file}.heapprofile`, JSON.stringify(heap.profile))
  }
  const weights = sizes(heap.profile.head)
  return {
    places,
    functions,
    bytes: summed(weights, placeOf, weighed),
    allocating: summed(weights, nameOf, weighed),
  }
}

function printSideBySide(title, results, of) {
  const keys = [...new Set(results.flatMap((result) => [...of(result).keys()]))].slice(0, LINES)
  const width = Math.max(...results.map(({ name }) => name.length), 9)
  print(`\n${results.map(({ name }) => name.padStart(width)).join('  ')}  ${title}\n`)
  for (const key of keys) {
    const figures = results.map((result) => of(result).get(key)?.toFixed(1) ?? '–')
    print(`${figures.map((figure) => figure.padStart(width)).join('  ')}  ${key}\n`)
  }
}

function printHot(title, sums) {
  print(`\n${title}\n`)
  const worked = [...sums].filter(([key]) => !/^\((idle|program)\)/.test(key))
  for (const [key, amount] of worked.slice(0, LINES)) print(`${amount.toFixed(1).padStart(8)}  ${key}\n`)
}

function print(text) {
  process.stdout.write(text)
}

function free(inFlight) {
  return async (lock, ms) => (await uncontended(lock, { ms, inFlight })).sections
}

async function contended(lock, ms) {
  const waiters = 200
  const until = performance.now() + ms
  let sections = 0
  for (; performance.now() < until; sections += waiters) {
    const one = async () => lock.release(await lock.acquire('contended', TTL_MS))
    await Promise.all(Array.from({ length: waiters }, one))
  }
  return sections
}
