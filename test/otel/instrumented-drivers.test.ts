import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { IORedisInstrumentation } from '@opentelemetry/instrumentation-ioredis'
import { RedisInstrumentation } from '@opentelemetry/instrumentation-redis'
import { BasicTracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { createRequire } from 'node:module'
import { tracingChannel } from 'node:diagnostics_channel'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/locks.ts'

const open = new Set<unknown>()
const ended: ReadableSpan[] = []
const tracerProvider = new BasicTracerProvider({
  spanProcessors: [
    {
      onStart: (span) => open.add(span),
      onEnd(span) {
        open.delete(span)
        ended.push(span)
      },
      forceFlush: async () => undefined,
      shutdown: async () => undefined,
    },
  ],
})
for (const instrumentation of [new RedisInstrumentation(), new IORedisInstrumentation()])
  instrumentation.setTracerProvider(tracerProvider)
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())

// They change a driver while it is loaded by `require`, and must be there before it.
const require = createRequire(import.meta.url)
const { createClient } = require('redis') as typeof import('redis')
const { Redis } = require('ioredis') as typeof import('ioredis')

let nodes: Awaited<ReturnType<typeof startRedisNodes>>

beforeAll(async () => {
  nodes = await startRedisNodes(3)
})

afterAll(() => {
  context.disable()
  return nodes?.stop()
})

async function nodeRedisClient(url: string): Promise<object> {
  const client = createClient({ url })
  await client.on('error', () => undefined).connect()
  onTestFinished(() => client.destroy())
  return client
}

async function ioredisClient(url: string): Promise<object> {
  const client = new Redis(url)
  await client.ping()
  onTestFinished(() => client.disconnect())
  return client
}

const drivers = [
  { driver: 'node-redis', connect: nodeRedisClient, prefix: 'redis-', channel: 'node-redis:command' },
  { driver: 'ioredis', connect: ioredisClient, prefix: '', channel: 'ioredis:command' },
]

describe.each(drivers)('$driver, instrumented', ({ connect, prefix, channel }) => {
  test.each([1, 3])(
    'takes locks on %i of its servers in a span, and the span of each command ends as it did',
    async (size) => {
      const clients = await Promise.all(nodes.urls.slice(0, size).map(connect))
      for (const node of nodes.nodes) await node.cli('SCRIPT', 'FLUSH')
      ended.length = 0
      const locks = createLocks(size === 1 ? redis(clients[0]!) : redlock(clients))
      const request = tracerProvider.getTracer('test').startSpan('request')
      await context.with(trace.setSpan(context.active(), request), async () => {
        const lease = await locks.acquire('traced', { ttl: '30s' })
        expect(await locks.tryAcquire('traced', { wait: 0 })).toBeNull()
        await lease.extend('40s')
        expect(await lease.release()).toBe(true)
        // Commands of one turn go out together.
        await Promise.all(Array.from({ length: 5 }, (_, i) => locks.using(`traced:${i}`, () => undefined)))
      })
      await locks.close()
      request.end()
      await until(() => open.size === 0, { what: 'the end of all spans' })
      const commands = ended.filter(({ name }) => name.toLowerCase() === `${prefix}evalsha`)
      expect(new Set(commands.map(({ parentSpanContext }) => parentSpanContext?.spanId))).toEqual(
        new Set([request.spanContext().spanId]),
      )
      const failed = commands.filter(({ status }) => status.code === SpanStatusCode.ERROR)
      expect(failed.length).toBeGreaterThanOrEqual(size)
      for (const { status } of failed) expect(status.message).toContain('NOSCRIPT')
      expect(commands.length - failed.length).toBeGreaterThanOrEqual(size)
    },
  )

  test('a subscriber of its diagnostics channel gets the reply or the error of each command', async () => {
    const told: unknown[] = []
    const traces = tracingChannel(channel)
    const subscribers = { asyncEnd: (of: object) => told.push(Reflect.get(of, 'error') ?? Reflect.get(of, 'result')) }
    const client = await connect(nodes.urls[0]!)
    await nodes.nodes[0]!.cli('SCRIPT', 'FLUSH')
    traces.subscribe(subscribers as never)
    onTestFinished(() => traces.unsubscribe(subscribers as never))
    const locks = createLocks(redis(client))
    await locks.using('told', () => undefined)
    expect(told[0]).toMatchObject({ message: expect.stringContaining('NOSCRIPT') as string })
    expect(told).not.toContain(undefined)
    await locks.close()
  })
})
