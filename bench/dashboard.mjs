// node bench/dashboard.mjs [PAGES] [LEASES] [SECONDS]
// What the dashboard costs: a number of open pages, and a number of leases on one real Redis that are held and renewed by another
// process. Delay is from the grant of a further lease to when a page has heard of it.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer, get } from 'node:http'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { dashboard } from '../dist/dashboard/index.cjs'
import { redis } from '../dist/engines/redis/index.cjs'
import { createLocks } from '../dist/index.cjs'
import { startServers, stopServers } from './servers.mjs'

const [PAGES = 200, LEASES = 10_000, SECONDS = 30] = process.argv.slice(2).map(Number)
const ROLES = { hold, serve }
/** Acquired and released again, one after the other, all the time. */
const MARKERS_EVERY_MS = 500

/** Who forgets a lease does not hold it. */
const leases = []

const role = process.env.RINGFENCE_BENCH_ROLE
if (role === undefined) await measure()
else await ROLES[role](Number(process.env.RINGFENCE_BENCH_PORT))

/** Holds the leases, renewed every third of their 30 s. */
async function hold(port) {
  const locks = createLocks(redis(new Redis(port)), { ttl: '30s' })
  for (let held = 0; held < LEASES; held += 500) {
    const count = Math.min(500, LEASES - held)
    const names = Array.from({ length: count }, (_, index) => `tenant:${held + index}:report`)
    leases.push(...(await Promise.all(names.map((name) => locks.acquire(name)))))
  }
  process.send('ready')
}

/** The dashboard, alone in a process. */
async function serve(port) {
  const page = dashboard(redis(new Redis(port)), { auth: () => 'read' })
  const server = createServer(page.listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  process.on('message', (what) => {
    if (what === 'reset') delay.reset()
    const [{ user, system }, { rss, heapUsed }] = [process.cpuUsage(), process.memoryUsage()]
    const loop = { p99: delay.percentile(99) / 1e6, longest: delay.max / 1e6 }
    process.send({ cpuMs: (user + system) / 1000, rss, heapUsed, loop, counts: page.counts })
  })
  process.send(server.address().port)
}

async function measure() {
  const children = []
  try {
    const [server] = await startServers(1)
    const start = async (name) => {
      const env = { ...process.env, RINGFENCE_BENCH_ROLE: name, RINGFENCE_BENCH_PORT: String(server.port) }
      const child = fork(import.meta.filename, process.argv.slice(2), { env })
      children.push(child)
      return [child, (await once(child, 'message'))[0]]
    }
    await start('hold')
    const [page, port] = await start('serve')
    const report = async (what) => {
      page.send(what)
      return (await once(page, 'message'))[0]
    }
    const empty = await report('report')
    const seen = new Map()
    const traffic = { bytes: 0 }
    const beganMs = performance.now()
    const pages = Array.from({ length: PAGES }, () => open(port, seen, traffic))
    await Promise.all(pages.map(({ complete }) => complete))
    const snapshotMs = performance.now() - beganMs
    const snapshotBytes = traffic.bytes
    // The crowd has come in; from here on it is every day.
    await sleep(3000)
    const [before, redisBefore] = [await report('reset'), await redisCpuMs(server.control)]
    const [startMs, startBytes] = [performance.now(), traffic.bytes]
    const delays = await markers(server.port, seen)
    const seconds = (performance.now() - startMs) / 1000
    const [after, redisAfter] = [await report('report'), await redisCpuMs(server.control)]
    const part = (ms) => `${((ms / seconds / 1000) * 100).toFixed(0)} %`
    const quantile = (of) => `${delays[Math.ceil(delays.length * of) - 1].toFixed(0)} ms`
    console.log(`${PAGES} pages, ${LEASES} leases renewed every 10 s, ${seconds.toFixed(0)} s, Node ${process.version}`)
    console.log(
      `all pages have all leases after ${(snapshotMs / 1000).toFixed(1)} s (${mb(snapshotBytes / PAGES)} each)`,
    )
    console.log(
      `memory of the server: ${mb(after.rss)} resident, ${mb(after.heapUsed)} heap; without pages ${mb(empty.rss)}`,
    )
    console.log(
      `CPU of the server: ${part(after.cpuMs - before.cpuMs)} of a core; of Redis ${part(redisAfter - redisBefore)}`,
    )
    console.log(
      `event loop of the server late by p99 ${after.loop.p99.toFixed(0)} ms, at most ${after.loop.longest.toFixed(0)} ms`,
    )
    console.log(`sent: ${((traffic.bytes - startBytes) / seconds / PAGES / 1024).toFixed(1)} kB/s a page`)
    console.log(`looks: ${((after.counts.looks - before.counts.looks) / seconds).toFixed(2)} a second`)
    console.log(`from a grant to the page: p50 ${quantile(0.5)}, p99 ${quantile(0.99)} of ${delays.length}`)
    for (const { request } of pages) request.destroy()
  } finally {
    for (const child of children) child.kill('SIGKILL')
    await stopServers()
  }
}

/** A page that only notes what it hears. */
function open(port, seen, traffic) {
  let complete
  let rest = ''
  const isComplete = new Promise((resolve) => (complete = resolve))
  const request = get({ port, path: '/events', agent: false }, (response) => {
    response.setEncoding('latin1').on('data', (text) => {
      traffic.bytes += text.length
      if (rest !== null) {
        // The last event of the snapshot is the first with leases and without more to come.
        if (!`${rest}${text}`.includes('"more":false')) {
          rest = text.slice(-20)
          return
        }
        rest = null
        complete()
      }
      if (!text.includes('marker:')) return
      for (const [name] of text.matchAll(/marker:\d+/g)) seen.get(name)?.(request)
    })
  })
  request.on('error', () => undefined)
  return { request, complete: isComplete }
}

/** Delays in ms, sorted: one a marker and page. */
async function markers(port, seen) {
  const client = new Redis(port)
  const locks = createLocks(redis(client), { renew: false })
  const delays = []
  const endMs = performance.now() + SECONDS * 1000
  for (let index = 0; performance.now() < endMs; index++) {
    const name = `marker:${index}`
    const heard = new Set()
    let grantedMs
    seen.set(name, (request) => {
      if (heard.has(request)) return
      heard.add(request)
      delays.push(performance.now() - grantedMs)
    })
    const acquired = locks.acquire(name)
    grantedMs = performance.now()
    await acquired
    // Not in step with the looks.
    await sleep(MARKERS_EVERY_MS * (0.5 + ((index * 0.618) % 1)))
  }
  await sleep(6000)
  if (delays.length < (PAGES * seen.size * 9) / 10)
    throw new Error(`only ${delays.length} of ${PAGES * seen.size} came`)
  await locks.close()
  client.disconnect()
  return delays.sort((a, b) => a - b)
}

function mb(bytes) {
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`
}

async function redisCpuMs(control) {
  const info = await control.info('cpu')
  return (
    1000 * [...info.matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].reduce((sum, [, value]) => sum + Number(value), 0)
  )
}
