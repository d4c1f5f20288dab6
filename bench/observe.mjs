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
import { verdict } from './goals.mjs'
import { connect, ringfence } from './libraries.mjs'
import { uncontended, warmUp } from './measure.mjs'
import { printQuestion } from './report.mjs'
import { median, Rounds, shuffled, spread } from './rounds.mjs'
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
  const { rows, toNobody } = await measure(servers, { rounds: options.quick ? 10 : 200, ms: 80 })
  const goal = { id: 'metrics', question: 1, text: 'of the rate without an observer, with metrics', goal: 0.95 }
  const goals = [verdict(goal, toNobody(METRICS))]
  const seconds = Math.round((performance.now() - began) / 1000)
  const title = 'one node, uncontended, one at a time: what observing costs'
  printQuestion({ number: 1, title, tables: [{ title: '', columns: COLUMNS, rows }], goals, seconds, load })
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
    entries.push({ name: each.name, clients, lock: await each.open(clients), tag: `observe:${each.name}` })
  }
  for (const { lock, tag } of entries) await warmUp(lock, { inFlight: 1, tag, atMostMs: 4000 })
  const names = entries.map(({ name }) => name)
  const [rates, cpu] = [new Rounds('sections a second', names), new Rounds('client CPU', names)]
  const slices = new Map(entries.map((entry) => [entry, []]))
  for (let round = 0; round < rounds; round++) {
    const measured = new Map()
    for (const entry of shuffled(entries)) {
      const { lock, tag } = entry
      await uncontended(lock, { ms: ms * 0.2, tag })
      const before = process.cpuUsage()
      const slice = await uncontended(lock, { ms, tag })
      const { user, system } = process.cpuUsage(before)
      measured.set(entry.name, { ...slice, cpuUs: (user + system) / slice.sections })
      slices.get(entry)?.push(measured.get(entry.name))
    }
    rates.add(new Map([...measured].map(([name, { perSecond }]) => [name, perSecond])))
    cpu.add(new Map([...measured].map(([name, { cpuUs }]) => [name, cpuUs])))
  }
  for (const { lock, clients } of entries) {
    await lock.close()
    for (const client of clients) client.disconnect()
  }
  const toNobody = (name) => rates.ratio(name, names[0])
  const rows = entries.map((entry) => {
    const middle = (key) => median(slices.get(entry).map((each) => each[key]))
    return {
      library: entry.name,
      perSecond: middle('perSecond'),
      spread: spread(rates.of(entry.name)),
      p50Ms: middle('p50Ms'),
      cpuUs: middle('cpuUs'),
      cpuToNobody: cpu.ratio(entry.name, names[0]).value,
      toNobody: toNobody(entry.name).value,
    }
  })
  return { rows, toNobody }
}

function library(name, observe, create = createLocks, engine = redis) {
  return {
    ...ringfence,
    name,
    async open([client]) {
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
