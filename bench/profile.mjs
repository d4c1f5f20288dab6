// node bench/profile.mjs QUESTION [LIBRARY] [SECONDS]
// One library alone under the load of question 1, 2, 3 or 5: after a warm-up, where its time and its memory go.
// The profiles are written as well, for Chrome's developer tools.
import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { connect, libraryNamed } from './libraries.mjs'
import { TTL_MS, uncontended, WARM_SECTIONS } from './measure.mjs'
import { counts, resetCounts, serverCpu, startServers, stopServers } from './servers.mjs'

const [question = '1', name = 'ringfence', seconds = '5'] = process.argv.slice(2)
const [load, nodes] = /** @type {const} */ ({
  1: [free(1), 1],
  2: [free(1), 5],
  3: [free(64), 1],
  '3-five': [free(64), 5],
  5: [contended, 1],
  '5-five': [contended, 5],
})[question]
const LINES = 45

try {
  const servers = await startServers(nodes)
  const clients = await connect(servers.map(({ port }) => port))
  const lock = libraryNamed(name).open(clients)
  for (let sections = 0; sections < WARM_SECTIONS;) sections += await load(lock, 200)
  await cost(servers, lock)
  await profiles(lock)
  await lock.close()
  for (const client of clients) client.disconnect()
} finally {
  await stopServers()
}

async function cost(servers, lock) {
  await resetCounts(servers)
  const serversBefore = await serverCpu(servers)
  const before = process.cpuUsage()
  const sections = await load(lock, Number(seconds) * 1000)
  const { user, system } = process.cpuUsage(before)
  const serversUs = ((await serverCpu(servers)) - serversBefore) * 1e6
  const calls = [...(await counts(servers))].filter(([, number]) => number >= sections / 100)
  print(`${name}, question ${question}, each section: client ${((user + system) / sections).toFixed(0)} µs CPU, `)
  print(`servers ${(serversUs / sections).toFixed(0)} µs CPU, `)
  print(`${calls.map(([command, number]) => `${command} ${(number / sections).toFixed(2)}`).join(', ')}\n`)
}

async function profiles(lock) {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: 200 })
  await session.post('Profiler.start')
  const timed = await load(lock, Number(seconds) * 1000)
  const { profile } = await session.post('Profiler.stop')
  await session.post('HeapProfiler.startSampling', {
    samplingInterval: 4096,
    includeObjectsCollectedByMinorGC: true,
    includeObjectsCollectedByMajorGC: true,
  })
  const weighed = await load(lock, Number(seconds) * 1000)
  const heap = await session.post('HeapProfiler.stopSampling')
  session.disconnect()
  const file = `ringfence-question-${question}`
  writeFileSync(`${file}.cpuprofile`, JSON.stringify(profile))
  writeFileSync(`${file}.heapprofile`, JSON.stringify(heap.profile))
  printHot('µs a section', times(profile), timed)
  printHot('bytes a section', sizes(heap.profile.head), weighed)
}

/** Self time in µs by function. Time in which nothing of ours ran is left out. */
function times({ nodes, samples, timeDeltas }) {
  const frames = new Map(nodes.map((node) => [node.id, node.callFrame]))
  const sums = new Map()
  for (const [index, id] of samples.entries()) {
    const frame = frames.get(id)
    if (frame.functionName !== '(idle)' && frame.functionName !== '(program)') add(sums, frame, timeDeltas[index])
  }
  return sums
}

function sizes(node, sums = new Map()) {
  if (node.selfSize > 0) add(sums, node.callFrame, node.selfSize)
  for (const child of node.children) sizes(child, sums)
  return sums
}

function add(sums, { functionName, url, lineNumber }, amount) {
  const place = url.replace(/^file:\/\/.*?\/(dist|node_modules|bench)\//, '$1/')
  const key = `${functionName || '(anonymous)'} ${place}:${lineNumber + 1}`
  sums.set(key, (sums.get(key) ?? 0) + amount)
}

function printHot(unit, sums, sections) {
  const sorted = [...sums].sort((a, b) => b[1] - a[1])
  const ours = sorted.filter(([key]) => key.includes(' dist/'))
  print(`\n${(sum(sorted) / sections).toFixed(1)} ${unit}, ${(sum(ours) / sections).toFixed(1)} of them in dist\n`)
  for (const [key, amount] of sorted.slice(0, LINES)) print(`${(amount / sections).toFixed(1).padStart(8)}  ${key}\n`)
}

function sum(entries) {
  return entries.reduce((total, [, amount]) => total + amount, 0)
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
