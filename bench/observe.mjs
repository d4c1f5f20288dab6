// node bench/observe.mjs [--quick] [--against DIST]
// What observing costs: question 1 (one node, uncontended, one at a time) by ringfence alone, side by side without an
// observer, with one that does nothing, with OpenTelemetry's metrics, and with its traces as well. With --against, another
// build of ringfence (its dist folder) without an observer runs beside them.
import { loadavg } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { createLocks } from 'ringfence'
import { instrument } from 'ringfence/otel'
import { redis } from 'ringfence/redis'
import { of, target } from './compare.mjs'
import { connect, ringfence } from './libraries.mjs'
import { inRounds, median, ratio, summary, uncontended, warmUp } from './measure.mjs'
import { printQuestion } from './report.mjs'
import { startServers, stopServers } from './servers.mjs'

const { values: options } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, against: { type: 'string' } },
})

const meterProvider = new MeterProvider({ readers: [new PrometheusExporter({ preventServerStart: true })] })
const spans = { export: (_spans, done) => done({ code: 0 }), shutdown: async () => undefined }
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(spans)] })

const METRICS = 'metrics'
/** Ratios are to the first one, round by round. */
const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'perSecond', title: 'sections/s', digits: 0 },
  { key: 'spread', title: 'spread', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 3 },
  { key: 'cpuUs', title: 'client CPU µs', digits: 0 },
  { key: 'cpuToNobody', title: 'CPU to nobody', ratio: true },
  { key: 'toNobody', title: 'rate to nobody', ratio: true },
]

const who = [
  library('nobody observes', undefined),
  library('an observer that does nothing', () => undefined),
  library(METRICS, instrument({ meterProvider, traces: false })),
  library('metrics and traces', instrument({ meterProvider, tracerProvider })),
]
if (options.against !== undefined) {
  const dist = pathToFileURL(`${path.resolve(options.against)}/`)
  const other = await import(new URL('index.js', dist).href)
  const engines = await import(new URL('engines/redis/index.js', dist).href)
  who.push(library('another build, nobody observes', undefined, other.createLocks, engines.redis))
}

process.once('SIGINT', () => process.exit(130))

try {
  const servers = await startServers(1)
  const began = performance.now()
  const load = loadavg()[0]
  const rows = await measure(servers, { rounds: options.quick ? 10 : 200, ms: 80 })
  const targets = [
    target('of the rate without an observer, with metrics', of(rows, METRICS).toNobody, { atLeast: 0.95 }),
  ]
  const seconds = Math.round((performance.now() - began) / 1000)
  const title = 'one node, uncontended, one at a time: what observing costs'
  printQuestion({ number: 1, title, tables: [{ title: '', columns: COLUMNS, rows }], targets, seconds, load })
} finally {
  await stopServers()
  await meterProvider.shutdown()
  await tracerProvider.shutdown()
}
process.exit()

/** As in question 1, with the client's CPU time: on a busy machine that is the steadier figure. */
async function measure(servers, { rounds, ms }) {
  const entries = []
  for (const each of who) {
    const clients = await connect(servers.map(({ port }) => port))
    entries.push({ name: each.name, clients, lock: each.open(clients), tag: `observe:${each.name}` })
  }
  for (const { lock, tag } of entries) await warmUp(lock, { inFlight: 1, tag, atMostMs: 4000 })
  const results = await inRounds(entries, rounds, async ({ lock, tag }) => {
    await uncontended(lock, { ms: ms * 0.2, tag })
    const before = process.cpuUsage()
    const measured = await uncontended(lock, { ms, tag })
    const { user, system } = process.cpuUsage(before)
    return { ...measured, cpuUs: (user + system) / measured.sections }
  })
  const base = results.get(entries[0])
  for (const { lock, clients } of entries) {
    await lock.close()
    for (const client of clients) client.disconnect()
  }
  return entries.map((entry) => {
    const slices = results.get(entry)
    const cpuToNobody = median(slices.map(({ cpuUs }, round) => cpuUs / base[round].cpuUs))
    const cpuUs = median(slices.map((each) => each.cpuUs))
    return { library: entry.name, ...summary(slices), cpuUs, cpuToNobody, toNobody: ratio(slices, base) }
  })
}

function library(name, observe, create = createLocks, engine = redis) {
  return {
    ...ringfence,
    name,
    open([client]) {
      const locks = create(engine(client), { wait: '5m', ...(observe === undefined ? {} : { observe }) })
      return {
        acquire: (resource, ttlMs) => locks.acquire(resource, { ttl: ttlMs }),
        release: (lease) => lease.release(),
        hold: undefined,
        close: () => locks.close(),
      }
    },
  }
}
