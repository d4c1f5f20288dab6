// A service that has everything happen to its locks, for docs/observability: Prometheus scrapes METRICS_PORT.
// REDIS_URLS=redis://a:6379,redis://b:6379,redis://c:6379 METRICS_PORT=9464 node examples/observed-service.mjs
import { setTimeout as sleep } from 'node:timers/promises'
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { instrument } from 'ringfence/otel'
import { redlock } from 'ringfence/redis'

const exporter = new PrometheusExporter({ host: '127.0.0.1', port: Number(process.env.METRICS_PORT) })
const meterProvider = new MeterProvider({ readers: [exporter] })
// Names such as order:42 become their class, order: few enough for a time series each.
const observe = instrument({ meterProvider, resource: (name) => name.split(':')[0] })

const clients = process.env.REDIS_URLS.split(',').map((url) => new Redis(url))
for (const client of clients) client.on('error', (error) => console.error(error.message))
const locks = createLocks(redlock(clients), { ttl: '3s', wait: '2s', observe })
const guard = redisGuard(clients[0], { observe })

const end = new AbortController()
process.once('SIGTERM', () => end.abort())

/** Again and again until the end; a lock that is not granted is what this service is about. */
async function repeatedly(work) {
  while (!end.signal.aborted) await work().catch((error) => error.code ?? console.error(error))
}

await Promise.all([
  // Orders, by several workers: they wait for each other and hand the lease over.
  ...[1, 2, 3, 4].map(() => repeatedly(() => locks.using('order:42', () => sleep(20)))),
  // A report that takes longer than its lease, so that it is renewed.
  repeatedly(() => locks.using('report:daily', () => sleep(4000))),
  // Somebody who would like to have that too: at once, soon, or until a change of mind.
  repeatedly(async () => {
    await locks.tryAcquire('report:daily').then((lease) => lease?.release())
    await locks.acquire('report:daily', { wait: 100 }).then(
      (lease) => lease.release(),
      () => undefined,
    )
    await locks.acquire('report:daily', { signal: AbortSignal.timeout(100) }).then((lease) => lease.release())
  }),
  // A holder that was paused for too long: its lease is lost, and the store refuses what it writes.
  repeatedly(async () => {
    const paused = await locks.acquire('stock:7', { ttl: 100, renew: false })
    const next = await locks.acquire('stock:7')
    await guard.enter(next)
    await guard.set(paused, '{stock:7}', 'old').catch(() => undefined)
    await next.release()
    await sleep(500)
  }),
  // How the servers answer: their clocks and their memory.
  repeatedly(async () => {
    await locks.probe()
    await sleep(1000)
  }),
  // Work that blocks the event loop.
  repeatedly(async () => {
    const until = performance.now() + 150
    while (performance.now() < until);
    await sleep(1000)
  }),
])

await locks.close()
for (const client of clients) client.disconnect()
await meterProvider.shutdown()
