import { metrics as globalMetrics } from '@opentelemetry/api'
import { DataPointType, MeterProvider, MetricReader, type MetricData } from '@opentelemetry/sdk-metrics'
import { describe, expect, onTestFinished, test } from 'vitest'
import { EngineError } from '../../src/errors.ts'
import type { LockEvent } from '../../src/events.ts'
import { instrument } from '../../src/otel/index.ts'
import { systemRandom } from '../../src/random.ts'
import { fails, Gate, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, neighbour, refOf, type Bench } from '../unit/bench.ts'
import { telemetry, type Telemetry } from './telemetry.ts'

/** Locks on a clock that stands still, measured. */
function measured(options: Parameters<typeof telemetry>[0] = {}): Bench & Telemetry {
  const told = telemetry(options)
  return { ...bench({ ttl: '30s', wait: '10s', observe: told.observe }), ...told }
}

const RIVAL = { kind: 'refused', reason: 'held', holder: 'rival' } as const
const down = new EngineError('the server is away', ['a'], { transient: false })

describe('time to acquire', () => {
  test.each<[string, (it: Bench) => Promise<unknown>, number]>([
    ['granted', ({ locks }) => locks.acquire('a'), 0],
    ['refused', ({ engine, locks }) => (engine.next.acquire.push(() => RIVAL), locks.tryAcquire('a')), 0],
    ['error', ({ engine, locks }) => (engine.next.acquire.push(fails(down)), locks.tryAcquire('a')), 0],
    [
      'timed_out',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        await Promise.allSettled([it.locks.acquire('a', { wait: '4s' }), it.clock.advance(5000)])
      },
      4,
    ],
    [
      'aborted',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        const controller = new AbortController()
        const call = it.locks.acquire('a', { signal: controller.signal })
        await it.clock.advance(3000)
        controller.abort()
        await Promise.allSettled([call])
      },
      3,
    ],
    [
      'aborted',
      async (it) => {
        await neighbour(it).acquire('a', { ttl: '1h' })
        const call = it.locks.acquire('a')
        await it.clock.advance(2000)
        await Promise.allSettled([call, it.locks.close()])
      },
      2,
    ],
  ])('of a call that is %s', async (outcome, make, seconds) => {
    const it = measured()
    await make(it).catch(() => undefined)
    const points = await it.points('ringfence.acquire.duration')
    expect(points.map(({ attributes }) => attributes['ringfence.outcome'])).toEqual([outcome])
    expect(await it.count('ringfence.acquire.duration', { 'ringfence.engine': 'scripted' })).toBe(1)
    expect(await it.sum('ringfence.acquire.duration')).toBeCloseTo(seconds, 1)
    expect(await it.count('ringfence.waiters')).toBe(0)
  })

  test('names the kind of an error', async () => {
    const it = measured()
    it.engine.next.acquire.push(fails(down))
    await it.locks.tryAcquire('a').catch(() => undefined)
    expect(await it.count('ringfence.acquire.duration', { 'error.type': 'ENGINE' })).toBe(1)
  })

  test('counts attempts that met a holder or a failing engine apart from the outcome', async () => {
    const it = measured()
    it.engine.next.acquire.push(
      () => RIVAL,
      fails(new EngineError('not now', ['a'])),
      () => ({ kind: 'refused', reason: 'split', retryWithinMs: 5 }),
    )
    const call = it.locks.acquire('a')
    await it.clock.advance(5000)
    await call
    expect(await it.count('ringfence.acquire.duration')).toBe(1)
    expect(await it.count('ringfence.attempt.refusals', { 'ringfence.reason': 'held' })).toBe(1)
    expect(await it.count('ringfence.attempt.refusals', { 'ringfence.reason': 'split' })).toBe(1)
    expect(await it.count('ringfence.attempt.failures', { 'error.type': 'ENGINE' })).toBe(1)
  })
})

describe('leases', () => {
  test('are held until they are released, and for how long is known', async () => {
    const it = measured()
    const lease = await it.locks.acquire('a')
    expect(await it.count('ringfence.leases', { 'ringfence.engine': 'scripted' })).toBe(1)
    await it.clock.advance(7000)
    await lease.release()
    expect(await it.count('ringfence.leases')).toBe(0)
    expect(await it.sum('ringfence.hold.duration', { 'ringfence.outcome': 'released' })).toBe(7)
  })

  test('are renewed with a slack, in parts of the ttl', async () => {
    const it = measured()
    await it.locks.acquire('a')
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(15_000)
    expect(await it.count('ringfence.renewals', { 'ringfence.outcome': 'renewed' })).toBe(1)
    expect(await it.count('ringfence.renewals', { 'ringfence.outcome': 'doubtful' })).toBe(1)
    expect(await it.sum('ringfence.renewal.slack')).toBeCloseTo(19 / 30)
  })

  test.each<[string, string, (it: Bench) => Promise<unknown>]>([
    [
      'stolen',
      'lost',
      async (it) => {
        await it.locks.acquire('a')
        it.engine.next.extend.push(lost)
        await it.clock.advance(10_000)
      },
    ],
    [
      'unreachable',
      'lost',
      async (it) => {
        await it.locks.acquire('a')
        for (let i = 0; i < 100; i++) it.engine.next.extend.push(unknown('no answer'))
        await it.clock.advance(40_000)
      },
    ],
    [
      'doubtful',
      'lost',
      async (it) => {
        await it.locks.acquire('a', { onDoubt: 'stop' })
        it.engine.next.extend.push(unknown('no answer'))
        await it.clock.advance(10_000)
      },
    ],
    [
      'max-hold',
      'lost',
      async (it) => {
        await it.locks.acquire('a', { maxHold: '40s' })
        await it.clock.advance(40_000)
      },
    ],
    [
      'expired',
      'lost',
      async (it) => {
        await it.locks.acquire('a', { renew: false })
        await it.clock.advance(40_000)
      },
    ],
    [
      'unnoticed',
      'lost',
      async (it) => {
        const lease = await it.locks.acquire('a')
        await it.engine.inner.release(refOf(lease))
        expect(await lease.release()).toBe(false)
      },
    ],
  ])('are lost, %s', async (reason, outcome, make) => {
    const it = measured()
    await make(it)
    const losses = (await it.points('ringfence.losses')).filter(({ value }) => value !== 0)
    expect(losses.map(({ attributes, value }) => [attributes['ringfence.reason'], value])).toEqual([[reason, 1]])
    expect(await it.count('ringfence.hold.duration', { 'ringfence.outcome': outcome })).toBe(1)
    expect(await it.count('ringfence.leases')).toBe(0)
    expect(await it.count('ringfence.renewals', { 'ringfence.outcome': 'lost' })).toBe(reason === 'stolen' ? 1 : 0)
  })

  test('whose release fails end with an unknown outcome', async () => {
    const it = measured()
    const lease = await it.locks.acquire('a')
    it.engine.next.release.push(fails(down))
    await lease.release().catch(() => undefined)
    expect(await it.count('ringfence.hold.duration', { 'ringfence.outcome': 'unknown' })).toBe(1)
    expect(await it.count('ringfence.losses')).toBe(0)
  })

  test('are handed over', async () => {
    const it = measured()
    const sections = Array.from({ length: 5 }, () => it.locks.using('a', () => undefined))
    await it.clock.advance(1000)
    await Promise.all(sections)
    expect(await it.count('ringfence.handovers')).toBe(4)
    expect(await it.count('ringfence.leases')).toBe(0)
    expect(await it.count('ringfence.waiters')).toBe(0)
  })

  test('that were counted before are there with a zero from the first call on, so that the first loss is a rise', async () => {
    const it = measured()
    await it.locks.tryAcquire('a')
    const losses = await it.points('ringfence.losses')
    expect(losses.map(({ attributes, value }) => [attributes['ringfence.reason'], value])).toEqual(
      ['stolen', 'unreachable', 'doubtful', 'expired', 'max-hold', 'abandoned', 'unnoticed'].map((reason) => [
        reason,
        0,
      ]),
    )
  })
})

test('a stall of the process is measured', async () => {
  const it = measured()
  await it.locks.acquire('a')
  await it.clock.stall(25_000)
  expect(await it.count('ringfence.stall.duration', { 'ringfence.engine': 'scripted' })).toBe(1)
  expect(await it.sum('ringfence.stall.duration')).toBe(24)
})

describe('nothing is left over', () => {
  test('of waiters while they wait, and after each has ended its own way', async () => {
    const it = measured()
    const rival = await neighbour(it).acquire('a', { ttl: '1h' })
    const controller = new AbortController()
    const calls = [
      it.locks.acquire('a', { wait: '1m' }),
      it.locks.acquire('a', { wait: '2s' }),
      it.locks.acquire('a', { signal: controller.signal }),
      it.locks.acquire('a', { wait: '1h' }),
    ]
    const settled = Promise.allSettled(calls)
    await it.clock.advance(100)
    expect(await it.count('ringfence.waiters')).toBe(4)
    controller.abort()
    await it.clock.advance(3000)
    expect(await it.count('ringfence.waiters')).toBe(2)
    await rival.release()
    await it.clock.advance(100)
    expect(await it.count('ringfence.waiters')).toBe(1)
    expect(await it.count('ringfence.leases')).toBe(1)
    await it.locks.close()
    await settled
    expect(await it.count('ringfence.waiters')).toBe(0)
    expect(await it.count('ringfence.leases')).toBe(0)
  })

  test('of what was won after its caller had gone', async () => {
    const it = measured()
    const gate = new Gate()
    it.engine.next.acquire.push(async (_request, pass) => (await gate.opened, pass()))
    const controller = new AbortController()
    const call = it.locks.acquire('a', { signal: controller.signal })
    controller.abort()
    await expect(call).rejects.toMatchObject({ name: 'AbortError' })
    gate.open()
    await it.clock.advance(10)
    expect(await it.leases()).toEqual([])
    expect(await it.count('ringfence.waiters')).toBe(0)
    expect(await it.count('ringfence.leases')).toBe(0)
  })

  test('of a job that was left to run out', async () => {
    const it = measured()
    await it.locks.once('job', { atLeast: '10s' }, () => undefined)
    expect(await it.count('ringfence.leases')).toBe(0)
    expect(await it.count('ringfence.hold.duration', { 'ringfence.outcome': 'left' })).toBe(1)
  })
})

/** Much happens to resources with telling names; what was measured and traced of it. */
async function everything(it: Bench & Telemetry): Promise<string> {
  const secret = await it.locks.acquire(['customer:4711', 'order:42'])
  it.engine.next.extend.push(unknown("could not extend 'customer:4711'"))
  await it.clock.advance(15_000)
  const [waited] = await Promise.allSettled([it.locks.acquire('customer:4711', { wait: '1s' }), it.clock.advance(2000)])
  it.engine.next.acquire.push(fails(new EngineError("'order:43' is down", ['order:43'], { transient: false })))
  const [failed] = await Promise.allSettled([it.locks.acquire('order:43')])
  expect([waited.status, failed.status]).toEqual(['rejected', 'rejected'])
  await secret.release()
  await it.locks.close()
  return JSON.stringify([
    await it.metrics(),
    it.spans().map(({ attributes, events, status, links }) => ({ attributes, events, status, links })),
  ])
}

describe('resources', () => {
  test('are named in no attribute, event or status', async () => {
    const it = measured()
    const told = await everything(it)
    expect(told).toContain("could not extend '…'")
    expect(told).toContain("'…' is down")
    expect(told).not.toMatch(/4711|customer|order/)
    expect(told).not.toContain('ringfence.resource')
  })

  test('show by their class where a function makes one of them', async () => {
    const it = measured({ resource: (name) => name.split(':')[0]! })
    await it.locks.using('order:42', () => undefined)
    await it.locks.using(['order:1', 'order:2', 'stock:7'], () => undefined)
    for (const kind of ['order', 'order,stock']) {
      expect(await it.count('ringfence.acquire.duration', { 'ringfence.resource': kind })).toBe(1)
      expect(await it.count('ringfence.hold.duration', { 'ringfence.resource': kind })).toBe(1)
      expect(await it.count('ringfence.leases', { 'ringfence.resource': kind })).toBe(0)
    }
    expect(it.spans().map(({ attributes }) => attributes['ringfence.resource'])).toEqual([
      'order',
      'order',
      'order,stock',
      'order,stock',
    ])
    expect(JSON.stringify(await it.metrics())).not.toContain('order:42')
  })
})

function kind(metric: MetricData): string {
  if (metric.dataPointType === DataPointType.HISTOGRAM) return 'histogram'
  return metric.dataPointType === DataPointType.SUM && metric.isMonotonic ? 'counter' : 'level'
}

test('every metric has its kind, its unit, a description and buckets of its own', async () => {
  const it = measured()
  // One of each kind of event, as the core tells it.
  const about = { call: -1, resources: ['a'], owner: 'o' }
  const lease = { resources: ['a'], owner: 'o', token: 1n }
  const events: LockEvent[] = [
    { type: 'asked', call: -1, resources: ['a'], waitMs: 0, shared: false },
    { type: 'refused', ...about, reason: 'held', holder: undefined },
    { type: 'failed', ...about, cause: down },
    { type: 'granted', ...about, token: 1n, waitedMs: 1, handedOver: true, shared: false },
    { type: 'renewed', ...lease, slackMs: 1, ttlMs: 2 },
    { type: 'lost', ...lease, reason: 'stolen', heldMs: 1 },
    { type: 'stalled', lateMs: 1, leases: 1 },
    { type: 'roundTrip', node: 'n', operation: 'acquire', outcome: 'answered', tookMs: 1 },
  ]
  for (const event of events) it.observe(event, 'memory')
  it.observe({
    type: 'rejected',
    reason: 'stale',
    guard: 'redis',
    resource: 'a',
    token: 1n,
    engine: 'memory',
    seen: { token: 2n, engine: 'memory' },
  })
  const all = await it.metrics()
  expect(
    Object.fromEntries(all.map((metric) => [metric.descriptor.name, `${kind(metric)} ${metric.descriptor.unit}`])),
  ).toEqual({
    'ringfence.acquire.duration': 'histogram s',
    'ringfence.attempt.refusals': 'counter {attempt}',
    'ringfence.attempt.failures': 'counter {attempt}',
    'ringfence.waiters': 'level {waiter}',
    'ringfence.leases': 'level {lease}',
    'ringfence.hold.duration': 'histogram s',
    'ringfence.renewals': 'counter {renewal}',
    'ringfence.renewal.slack': 'histogram 1',
    'ringfence.losses': 'counter {lease}',
    'ringfence.handovers': 'counter {handover}',
    'ringfence.stall.duration': 'histogram s',
    'ringfence.node.duration': 'histogram s',
    'ringfence.guard.rejections': 'counter {rejection}',
  })
  expect(all.map(({ descriptor }) => descriptor.description)).not.toContain('')
  const histograms = all.filter((metric) => metric.dataPointType === DataPointType.HISTOGRAM)
  const bounds = histograms.map(({ descriptor, dataPoints }) => [
    descriptor.name,
    dataPoints[0]!.value.buckets.boundaries[0],
    dataPoints[0]!.value.buckets.boundaries.at(-1),
  ])
  expect(bounds).toEqual([
    ['ringfence.acquire.duration', 0.001, 300],
    ['ringfence.hold.duration', 0.001, 86_400],
    ['ringfence.renewal.slack', 0.01, 1],
    ['ringfence.stall.duration', 0.1, 300],
    ['ringfence.node.duration', 0.0001, 5],
  ])
})

describe('instrument', () => {
  test('takes the global providers as they are at the first event, not when it is called', async () => {
    class Reader extends MetricReader {
      protected override async onForceFlush(): Promise<void> {}
      protected override async onShutdown(): Promise<void> {}
    }
    const observe = instrument()
    const reader = new Reader()
    globalMetrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))
    onTestFinished(() => globalMetrics.disable())
    const { locks } = bench({ observe })
    await locks.acquire('a')
    const { resourceMetrics } = await reader.collect()
    expect(resourceMetrics.scopeMetrics.map(({ scope }) => scope.name)).toEqual(['ringfence'])
  })

  test('does nothing, and breaks nothing, without an SDK', async () => {
    const { locks } = bench({ observe: instrument() })
    expect(await locks.using('a', ({ held }) => held)).toBe(true)
  })

  test('serves several locks at once', async () => {
    const told = telemetry()
    const one = bench({ observe: told.observe })
    const other = bench({ observe: told.observe, random: systemRandom })
    const leases = [await one.locks.acquire('a'), await other.locks.acquire('a')]
    expect(await told.count('ringfence.leases')).toBe(2)
    for (const lease of leases) await lease.release()
    expect(await told.count('ringfence.leases')).toBe(0)
  })

  test('loses nothing of what it keeps back, however many there are and whenever they are collected', async () => {
    const it = measured()
    let made = 0
    for (const soFar of [77, 154, 300]) {
      for (; made < soFar; made++) await it.locks.using('a', () => undefined)
      expect(await it.count('ringfence.acquire.duration')).toBe(soFar)
    }
    expect(await it.count('ringfence.acquire.duration', { 'ringfence.outcome': 'granted' })).toBe(300)
    expect(await it.count('ringfence.hold.duration', { 'ringfence.outcome': 'released' })).toBe(300)
  })

  test('adds up with another one of the same provider', async () => {
    const told = telemetry()
    const { meterProvider } = told
    const one = bench({ observe: told.observe })
    const other = bench({ observe: instrument({ meterProvider }) })
    await one.locks.acquire('a')
    await other.locks.acquire('a')
    expect(await told.count('ringfence.leases')).toBe(2)
    expect(await told.count('ringfence.acquire.duration')).toBe(2)
  })

  test('tells an observer of ours the same', async () => {
    const seen: string[] = []
    const { observe } = telemetry({ observe: (event, engine) => void seen.push(`${event.type} ${engine}`) })
    const { locks } = bench({ observe })
    await locks.tryAcquire('a')
    expect(seen).toEqual(['asked scripted', 'attempt scripted', 'granted scripted'])
  })

  test.each([
    [{ resource: 'order' }, "resource: expected a function, got 'order'"],
    [{ observe: 1 }, 'observe: expected a function, got 1'],
    [{ traces: 'no' }, "traces: expected true or false, got 'no'"],
    [{ meterProvider: {} }, 'meterProvider: expected an object with getMeter'],
    [{ tracerProvider: null }, 'tracerProvider: expected an object with getTracer, got null'],
    [{ meter: {} }, "options: expected resource, observe, traces, meterProvider, tracerProvider, got 'meter'"],
  ])('refuses %o', (options, message) => {
    expect(() => instrument(options as never)).toThrow(TypeError)
    expect(() => instrument(options as never)).toThrow(message)
  })
})
