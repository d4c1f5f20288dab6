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
import { compare, COMPARE_COLUMNS, of, target } from './compare.mjs'
import { ringfence } from './libraries.mjs'
import { printQuestion } from './report.mjs'
import { startServers, stopServers } from './servers.mjs'

const { values: options } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, against: { type: 'string' } },
})

const meterProvider = new MeterProvider({ readers: [new PrometheusExporter({ preventServerStart: true })] })
const spans = { export: (_spans, done) => done({ code: 0 }), shutdown: async () => undefined }
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(spans)] })

const NOBODY = 'nobody observes'
const METRICS = 'metrics'

const who = [
  library(NOBODY, undefined),
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
  const rows = await compare(servers, { rounds: options.quick ? 8 : 60, ms: options.quick ? 80 : 200, who })
  const columns = COMPARE_COLUMNS.map((column) =>
    column.key === 'toBare' ? { ...column, title: 'to nobody' } : column,
  )
  const title = 'one node, uncontended, one at a time: what observing costs'
  const targets = [target('of the rate without an observer, with metrics', of(rows, METRICS).toBare, { atLeast: 0.95 })]
  const seconds = Math.round((performance.now() - began) / 1000)
  printQuestion({ number: 1, title, tables: [{ title: '', columns, rows }], targets, seconds, load })
} finally {
  await stopServers()
  await meterProvider.shutdown()
  await tracerProvider.shutdown()
}
process.exit()

/** Ratios are to the first one. */
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
