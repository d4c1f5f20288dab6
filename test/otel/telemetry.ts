import { context, type Attributes } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { MeterProvider, MetricReader, type Histogram, type MetricData } from '@opentelemetry/sdk-metrics'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base'
import { onTestFinished } from 'vitest'
import { instrument, type Instrument, type InstrumentOptions } from '../../src/otel/index.ts'

class Reader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

interface Point {
  readonly attributes: Attributes
  readonly value: number | Histogram
}

export interface Telemetry {
  readonly observe: Instrument
  readonly meterProvider: MeterProvider
  readonly tracerProvider: BasicTracerProvider
  /** All that has been measured. */
  metrics(): Promise<MetricData[]>
  metric(name: string): Promise<MetricData>
  /** What a counter says of these attributes, summed over the others; for a histogram how many were recorded. */
  count(name: string, attributes?: Attributes): Promise<number>
  /** The sum of what a histogram has recorded. */
  sum(name: string, attributes?: Attributes): Promise<number>
  points(name: string): Promise<Point[]>
  /** Those that have ended, in that order. */
  spans(): ReadableSpan[]
}

const total = (values: number[]): number => values.reduce((sum, value) => sum + value, 0)

/** The real SDK, read in memory. */
export function telemetry(options: InstrumentOptions = {}): Telemetry {
  const reader = new Reader()
  const meterProvider = new MeterProvider({ readers: [reader] })
  const exporter = new InMemorySpanExporter()
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const manager = new AsyncLocalStorageContextManager().enable()
  context.setGlobalContextManager(manager)
  onTestFinished(async () => {
    context.disable()
    await meterProvider.shutdown()
    await tracerProvider.shutdown()
  })
  const metrics = async (): Promise<MetricData[]> => {
    const { resourceMetrics } = await reader.collect()
    return resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  }
  const metric = async (name: string): Promise<MetricData> => {
    const all = await metrics()
    const found = all.find(({ descriptor }) => descriptor.name === name)
    if (found === undefined) throw new Error(`no ${name} among ${all.map(({ descriptor }) => descriptor.name).join()}`)
    return found
  }
  const points = async (name: string): Promise<Point[]> => (await metric(name)).dataPoints as Point[]
  const matching = async (name: string, wanted: Attributes): Promise<Point[]> =>
    (await points(name)).filter(({ attributes }) =>
      Object.entries(wanted).every(([key, value]) => attributes[key] === value),
    )
  return {
    observe: instrument({ meterProvider, tracerProvider, ...options }),
    meterProvider,
    tracerProvider,
    metrics,
    metric,
    points,
    async count(name, attributes = {}) {
      const found = await matching(name, attributes)
      return total(found.map(({ value }) => (typeof value === 'number' ? value : value.count)))
    },
    async sum(name, attributes = {}) {
      const found = await matching(name, attributes)
      return total(found.map(({ value }) => (typeof value === 'number' ? value : (value.sum ?? NaN))))
    },
    spans: () => exporter.getFinishedSpans(),
  }
}
