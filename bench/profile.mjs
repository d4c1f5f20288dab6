// node bench/profile.mjs [LOAD] [LIBRARY …] [--seconds N] [--baseline DIR] [--out DIR]
// What a section costs and where its time and its memory go, after a warm-up: one library after the other on the same servers,
// with what they cost side by side, then the functions of the first. LOAD: 1 (one at a time, one node), 2 (five nodes),
// 3 (64 in flight, one node), 3-five, 5 (200 waiters, one node), 5-five. With --out the profiles are written there, for
// Chrome's developer tools.
import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import path from 'node:path'
import { PerformanceObserver } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { connect, libraryOf, ringfenceFrom } from './libraries.mjs'
import { TTL_MS, uncontended, WARM_SECTIONS } from './measure.mjs'
import { counts, emptyServers, resetCounts, serverCpu, startServers, stopServers } from './servers.mjs'

const LINES = 30
const LOADS = {
  1: [free(1), 1],
  2: [free(1), 5],
  3: [free(64), 1],
  '3-five': [free(64), 5],
  5: [contended, 1],
  '5-five': [contended, 5],
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
  const results = []
  for (const library of chosen) {
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
  printSideBySide('bytes allocated a section, by place', results, ({ bytes }) => bytes)
  printHot(`µs a section, functions of ${results[0].name}`, results[0].functions)
  printHot(`bytes a section, functions of ${results[0].name}`, results[0].allocating)
} finally {
  await stopServers()
}
process.exit()

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
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: 200 })
  await session.post('Profiler.start')
  const timed = await load(lock, ms)
  const { profile } = await session.post('Profiler.stop')
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
  const [spent, weights] = [times(profile), sizes(heap.profile.head)]
  return {
    places: summed(spent, placeOf, timed),
    bytes: summed(weights, placeOf, weighed),
    functions: summed(spent, nameOf, timed),
    allocating: summed(weights, nameOf, weighed),
  }
}

/** Self time in µs by call frame. */
function times({ nodes, samples, timeDeltas }) {
  const frames = new Map(nodes.map((node) => [node.id, node.callFrame]))
  return samples.map((id, index) => ({ frame: frames.get(id), amount: timeDeltas[index] }))
}

function sizes(node) {
  return [{ frame: node.callFrame, amount: node.selfSize }, ...node.children.flatMap(sizes)]
}

/** Most of all first. */
function summed(samples, keyOf, sections) {
  const sums = new Map()
  for (const { frame, amount } of samples) {
    const key = keyOf(frame)
    sums.set(key, (sums.get(key) ?? 0) + amount / sections)
  }
  return new Map([...sums].sort((a, b) => b[1] - a[1]))
}

/** A package, Node itself, a file of ringfence, or what V8 calls by a name in brackets. */
function placeOf({ functionName, url }) {
  if (url === '') return functionName.startsWith('(') ? functionName : 'native code'
  if (url.startsWith('node:')) return 'node'
  return shortened(url).replace(/^(node_modules\/(?:@[^/]+\/)?[^/]+).*$/, '$1')
}

function nameOf({ functionName, url, lineNumber }) {
  return `${functionName || '(anonymous)'} ${shortened(url)}:${lineNumber + 1}`
}

function shortened(url) {
  return url.replace(/^(?:file:\/\/)?\/.*?\/(dist|node_modules|bench)\//, '$1/')
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
