import { metrics, trace, type MeterProvider, type TracerProvider } from '@opentelemetry/api'
import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import type { LockEvent } from '../events.ts'
import type { GuardEvent } from '../guards/guard.ts'
import { SCOPE } from './levels.ts'
import { Metrics } from './metrics.ts'
import { Spans } from './spans.ts'

/** Options of `instrument`. */
export interface InstrumentOptions {
  /**
   * Puts a resource into a class, which becomes the attribute `ringfence.resource`: `(name) => name.split(':')[0]`. There
   * should be few classes, because each one makes time series of its own. Default: no resource shows.
   */
  resource?: (name: string) => string
  /** An observer of your own, which receives the same events afterwards. */
  observe?: Instrument
  /** Spans for acquiring and for holding. Default true. Without a tracer provider there are no spans. */
  traces?: boolean
  /** Default: the global one, as it is at the first event. */
  meterProvider?: MeterProvider
  /** Default: the global one. */
  tracerProvider?: TracerProvider
}

/** An observer for locks and for guards. One observer can serve any number of them. */
export type Instrument = (event: LockEvent | GuardEvent, engine?: string) => void

/** Measures and traces with OpenTelemetry: `createLocks(engine, { observe: instrument() })`. */
export function instrument(options: InstrumentOptions = {}): Instrument {
  optionsOrThrow(options, ['resource', 'observe', 'traces', 'meterProvider', 'tracerProvider'])
  const { resource, observe, traces = true, meterProvider, tracerProvider } = options
  functionOrThrow(resource, 'resource')
  functionOrThrow(observe, 'observe')
  if (typeof traces !== 'boolean') throw new TypeError(`traces: expected true or false, got ${shown(traces)}`)
  providerOrThrow(meterProvider, 'meterProvider', 'getMeter')
  providerOrThrow(tracerProvider, 'tracerProvider', 'getTracer')
  const tracer = traces ? (tracerProvider ?? trace).getTracer(SCOPE) : undefined
  const spans = tracer === undefined ? undefined : new Spans(tracer, resource)
  let measured: Metrics | undefined
  return (event, engine = 'unknown') => {
    // Not earlier: a meter that is taken from the global provider before the SDK has started never measures anything.
    measured ??= new Metrics(meterProvider ?? metrics.getMeterProvider(), resource)
    measured.heard(event, engine)
    spans?.heard(event, engine)
    observe?.(event, engine)
  }
}

function functionOrThrow(value: unknown, name: string): void {
  if (value !== undefined && typeof value !== 'function') {
    throw new TypeError(`${name}: expected a function, got ${shown(value)}`)
  }
}

function providerOrThrow(value: object | undefined, name: string, method: string): void {
  if (value === undefined) return
  if (typeof value !== 'object' || value === null || typeof Reflect.get(value, method) !== 'function') {
    throw new TypeError(`${name}: expected an object with ${method}, got ${shown(value)}`)
  }
}
