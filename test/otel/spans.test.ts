import { context, SpanStatusCode, trace, type Span } from '@opentelemetry/api'
import { AlwaysOffSampler, BasicTracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { describe, expect, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import { fails, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, neighbour, refOf, type Bench } from '../unit/bench.ts'
import { telemetry, type Telemetry } from './telemetry.ts'

interface Traced extends Bench, Telemetry {
  /** The one span of this name that has ended. */
  span(name: 'ringfence acquire' | 'ringfence hold'): ReadableSpan
  within<T>(work: (span: Span) => T): T
}

function traced(options: Parameters<typeof telemetry>[0] = {}): Traced {
  const told = telemetry(options)
  return {
    ...bench({ ttl: '30s', wait: '10s', observe: told.observe }),
    ...told,
    span(name) {
      const found = told.spans().filter((span) => span.name === name)
      expect(found).toHaveLength(1)
      return found[0]!
    },
    within(work) {
      const span = told.tracerProvider.getTracer('test').startSpan('request')
      return context.with(trace.setSpan(context.active(), span), () => work(span))
    },
  }
}

const eventsOf = (span: ReadableSpan): string[] => span.events.map(({ name }) => name)

describe('spans', () => {
  test('of acquiring and holding are children of the span active at the call, and the hold is linked to the acquire', async () => {
    const it = traced()
    const request = await it.within(async (span) => {
      await it.locks.using('a', () => undefined)
      return span.spanContext()
    })
    const acquire = it.span('ringfence acquire')
    const hold = it.span('ringfence hold')
    expect(acquire.parentSpanContext?.spanId).toBe(request.spanId)
    expect(hold.parentSpanContext?.spanId).toBe(request.spanId)
    expect(hold.links.map((link) => link.context.spanId)).toEqual([acquire.spanContext().spanId])
    expect(acquire.attributes).toMatchObject({ 'ringfence.engine': 'scripted', 'ringfence.outcome': 'granted' })
    expect(hold.attributes).toMatchObject({ 'ringfence.token': '1', 'ringfence.outcome': 'released' })
    expect([acquire.status.code, hold.status.code]).toEqual([SpanStatusCode.UNSET, SpanStatusCode.UNSET])
  })

  test('say whether the lease is shared, and those of readers side by side end each with its own lease', async () => {
    const it = traced()
    const readers = [await it.locks.acquire('a', { shared: true }), await it.locks.acquire('a', { shared: true })]
    expect(readers[0]!.token).toBe(readers[1]!.token)
    await readers[1]!.release()
    const shownAs = (): unknown[] => it.spans().map(({ name, attributes }) => [name, attributes['ringfence.owner']])
    expect(shownAs()).toEqual([
      ['ringfence acquire', readers[0]!.owner],
      ['ringfence acquire', readers[1]!.owner],
      ['ringfence hold', readers[1]!.owner],
    ])
    await readers[0]!.release()
    expect(shownAs().at(-1)).toEqual(['ringfence hold', readers[0]!.owner])
    expect(it.spans().map(({ attributes }) => attributes['ringfence.shared'])).toEqual([true, true, true, true])
    await it.locks.using('a', () => undefined)
    expect(
      it
        .spans()
        .slice(4)
        .map(({ attributes }) => attributes['ringfence.shared']),
    ).toEqual([false, false])
  })

  test('keep to the call that they belong to when many callers wait at once', async () => {
    const it = traced()
    const requests = Array.from({ length: 3 }, () =>
      it.within(async (span) => {
        await it.locks.using('a', () => undefined)
        return span.spanContext().spanId
      }),
    )
    await it.clock.advance(1000)
    const ids = await Promise.all(requests)
    for (const name of ['ringfence acquire', 'ringfence hold']) {
      const parents = it.spans().filter((span) => span.name === name)
      expect(parents.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual(ids)
    }
  })

  test('of a call outside of any span share a trace', async () => {
    const it = traced()
    await it.locks.using('a', () => undefined)
    const [acquire, hold] = [it.span('ringfence acquire'), it.span('ringfence hold')]
    expect(acquire.parentSpanContext).toBeUndefined()
    expect(hold.spanContext().traceId).toBe(acquire.spanContext().traceId)
    expect(hold.parentSpanContext?.spanId).toBe(acquire.spanContext().spanId)
  })

  test('tell of the wait, with its holder, and of attempts that failed', async () => {
    const it = traced()
    const rival = await neighbour(it).acquire('a', { ttl: '1h' })
    it.engine.next.acquire.push(fails(new EngineError('not now', ['a'])))
    const call = it.locks.acquire('a')
    await it.clock.advance(1000)
    await rival.release()
    await it.clock.advance(1000)
    await call
    const { events } = it.span('ringfence acquire')
    expect(events.map(({ name }) => name)).toEqual(['failed', 'refused', 'waiting'])
    expect(events[0]!.attributes).toEqual({ 'error.type': 'ENGINE', 'exception.message': 'not now' })
    expect(events[2]!.attributes).toEqual({ 'ringfence.holder': rival.owner })
  })

  test('tell of renewals, of doubts and how much time was left', async () => {
    const it = traced()
    const lease = await it.locks.acquire('job:1')
    it.engine.next.extend.push((_leases, pass) => pass(), unknown('no answer'))
    await it.clock.advance(20_000)
    await lease.release()
    const hold = it.span('ringfence hold')
    expect(eventsOf(hold)).toEqual(['renewed', 'doubtful'])
    expect(hold.events[0]!.attributes).toEqual({ 'ringfence.slack': 20 })
    expect(hold.events[1]!.attributes).toMatchObject({ 'exception.message': 'no answer', 'ringfence.slack': 20 })
  })
})

describe('the status', () => {
  test.each<[string, (it: Bench) => Promise<unknown>]>([
    [
      'stolen',
      async (it) => {
        await it.locks.acquire('a')
        it.engine.next.extend.push(lost)
        await it.clock.advance(10_000)
      },
    ],
    [
      'unnoticed',
      async (it) => {
        const lease = await it.locks.acquire('a')
        await it.engine.inner.release(refOf(lease))
        await lease.release()
      },
    ],
  ])('of a hold that was lost is an error: %s', async (reason, make) => {
    const it = traced()
    await make(it)
    const hold = it.span('ringfence hold')
    expect(hold.status).toEqual({ code: SpanStatusCode.ERROR, message: `lost: ${reason}` })
    expect(hold.attributes).toMatchObject({ 'ringfence.outcome': 'lost', 'error.type': reason })
  })

  test('of a hold whose release failed is an error', async () => {
    const it = traced()
    const lease = await it.locks.acquire('a')
    it.engine.next.release.push(fails(new EngineError('away', ['a'])))
    await lease.release().catch(() => undefined)
    expect(it.span('ringfence hold').status).toEqual({ code: SpanStatusCode.ERROR, message: 'unknown: ENGINE' })
  })

  test.each<[string, string, number, (it: Bench) => Promise<unknown>]>([
    [
      'failed',
      'ENGINE',
      SpanStatusCode.ERROR,
      (it) => {
        it.engine.next.acquire.push(fails(new EngineError('away', ['a'], { transient: false })))
        return it.locks.acquire('a')
      },
    ],
    [
      'timeout',
      'WAIT_TIMEOUT',
      SpanStatusCode.ERROR,
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        await Promise.allSettled([it.locks.acquire('a', { wait: '1s' }), it.clock.advance(2000)])
      },
    ],
  ])('of a call that was denied, %s, is an error', async (outcome, type, code, make) => {
    const it = traced()
    await make(it).catch(() => undefined)
    const acquire = it.span('ringfence acquire')
    expect(acquire.status.code).toBe(code)
    expect(acquire.attributes).toMatchObject({ 'ringfence.outcome': outcome, 'error.type': type })
  })

  test.each<[string, (it: Bench) => Promise<unknown>]>([
    [
      'held',
      async (it) => {
        await neighbour(it).acquire('a')
        expect(await it.locks.tryAcquire('a')).toBeNull()
      },
    ],
    [
      'aborted',
      async (it) => {
        await neighbour(it).acquire('a')
        const controller = new AbortController()
        const call = it.locks.acquire('a', { signal: controller.signal })
        controller.abort()
        await Promise.allSettled([call])
      },
    ],
    [
      'closed',
      async (it) => {
        await neighbour(it).acquire('a')
        await Promise.allSettled([it.locks.acquire('a'), it.locks.close()])
      },
    ],
  ])('of a call that ended as it was meant to, %s, is none', async (outcome, make) => {
    const it = traced()
    await make(it)
    expect(it.span('ringfence acquire').status.code).toBe(SpanStatusCode.UNSET)
    expect(it.span('ringfence acquire').attributes['ringfence.outcome']).toBe(outcome)
  })
})

describe('no spans are made', () => {
  test('where they are not wanted', async () => {
    const it = traced({ traces: false })
    await it.locks.using('a', () => undefined)
    expect(it.spans()).toEqual([])
    expect(await it.count('ringfence.acquire.duration')).toBe(1)
  })

  test('where nothing is sampled', async () => {
    const tracerProvider = new BasicTracerProvider({ sampler: new AlwaysOffSampler() })
    const it = traced({ tracerProvider })
    await it.locks.using('a', () => undefined)
    expect(await it.count('ringfence.hold.duration')).toBe(1)
  })
})
