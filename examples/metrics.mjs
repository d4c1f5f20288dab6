// What your monitoring sees of the locks, by OpenTelemetry: node examples/metrics.mjs
import { metrics } from '@opentelemetry/api'
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'
import { instrument } from 'ringfence/otel'

const exporter = new PrometheusExporter({ preventServerStart: true }) // without that, it serves :9464/metrics
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [exporter] }))

const locks = createLocks(memory(), { observe: instrument() })

await locks.using('order:42', async () => {
  const { resourceMetrics } = await exporter.collect()
  const all = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  const leases = all.find(({ descriptor }) => descriptor.name === 'ringfence.leases')
  console.log(leases.dataPoints[0].value, leases.dataPoints[0].attributes)
})
await locks.close()
