import { Cluster, Redis } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import { createClient } from 'redis'
import { expect, onTestFinished, test } from 'vitest'
import { createLocks, EngineError, QuorumError } from '../../../src/index.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { addressOf, SINGLE } from './drivers-clients.ts'

const quiet = (): void => undefined

test('a node is asked again now and then, also where a driver has lost the answers of a thousand commands', async () => {
  await using server = await startRedis()
  await using proxy = await startProxy(server.port)
  const client = new Redis({ ...addressOf(proxy), autoResendUnfulfilledCommands: false }).on('error', quiet)
  onTestFinished(() => client.disconnect())
  const engine = redis(client, { requestTimeout: 100 })
  const locks = createLocks(engine)
  await locks.using('before', {}, () => undefined)
  proxy.dropReplies(true)
  const burst = Array.from({ length: 1100 }, (_, index) => locks.tryAcquire(`burst ${index}`))
  const lost = await Promise.allSettled(burst)
  expect(new Set(lost.map(({ status }) => status))).toEqual(new Set(['rejected']))
  const silenced = (): Promise<boolean> =>
    locks.tryAcquire('more').then(
      () => false,
      (error: unknown) => String(error).includes('commands unanswered'),
    )
  await until(silenced, { what: 'the node gets no more commands' })
  proxy.reset()
  proxy.dropReplies(false)
  const lease = await until(() => locks.tryAcquire('after'), { what: 'the node is asked again' })
  await lease.release()
  await locks.close()
}, 20_000)

test.each(Object.entries(SINGLE))(
  '%s: a closed client is an error at once, which waiting does not cure',
  async (_name, connect) => {
    await using server = await startRedis()
    const { client, close } = await connect(addressOf(server))
    const locks = createLocks(redis(client))
    await locks.using('a', {}, () => undefined)
    await close()
    await until(() => client.unusable(), { what: 'it is closed' })
    const error: unknown = await locks.acquire('a', { wait: '1h' }).catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(EngineError)
    expect(error).toMatchObject({
      transient: false,
      message: expect.stringMatching(/client cannot be used: it is closed/),
    })
    await locks.close()
  },
)

const reason = (address: string): unknown => expect.stringContaining(`ECONNREFUSED ${address}`)

interface Closing {
  readonly client: unknown
  readonly close: () => void
}

const DEAD: Record<string, (server: RedisServer) => Promise<Closing>> = {
  'ioredis with its defaults': async (server) => {
    const client = new Redis(addressOf(server)).on('error', quiet)
    return { client, close: () => client.disconnect() }
  },
  'ioredis that gives up at once': async (server) => {
    const client = new Redis({ ...addressOf(server), maxRetriesPerRequest: 0 }).on('error', quiet)
    return { client, close: () => client.disconnect() }
  },
  iovalkey: async (server) => {
    const client = new Valkey(addressOf(server)).on('error', quiet)
    return { client, close: () => client.disconnect() }
  },
  'node-redis': async (server) => {
    const client = await createClient({ socket: addressOf(server) })
      .on('error', quiet)
      .connect()
    return { client, close: () => client.destroy() }
  },
}

test.concurrent.each(Object.entries(DEAD))(
  '%s: the reason why a server is out of reach is in every error',
  async (_name, connect) => {
    await using servers = await startRedisNodes(3)
    const connected = await Promise.all(servers.nodes.map(connect))
    onTestFinished(() => connected.forEach(({ close }) => close()))
    const clients = connected.map(({ client }) => client)
    const one = createLocks(redis(clients[0]))
    const engine = redlock(clients)
    const quorum = createLocks(engine)
    await quorum.using('a', {}, () => undefined)
    await Promise.all(servers.nodes.map((server) => server.kill()))
    const reasons = servers.nodes.map(({ port }) => reason(`127.0.0.1:${port}`))
    // First of all the connections are lost; then it turns out why there are no others.
    const known = async (): Promise<boolean> => (await engine.probe!()).every(({ error }) => error?.includes('REFUSED'))
    await until(known, { what: 'the dashboard knows why all servers are away' })
    await expect(one.tryAcquire('a')).rejects.toMatchObject({ message: reasons[0] })
    const error: unknown = await quorum.tryAcquire('a').catch((failure: unknown) => failure)
    const nodes = error instanceof QuorumError ? error.nodes : []
    // Two failures of three are enough for it.
    expect(nodes.length).toBeGreaterThanOrEqual(2)
    expect(nodes.map(({ cause }) => cause.message)).toEqual(nodes.map(({ node }) => reason(node)))
    const findings = (await quorum.check()).filter(({ id }) => id === 'redis/reachable')
    expect(findings.map(({ found }) => found)).toEqual(reasons)
  },
  30_000,
)

test('a Cluster that finds no node says what the last one was', async () => {
  await using server = await startRedis()
  const cluster = new Cluster([addressOf(server)], { clusterRetryStrategy: () => 50 }).on('error', quiet)
  onTestFinished(() => cluster.disconnect())
  const engine = redis(cluster, { requestTimeout: 1000 })
  await server.kill()
  await expect(createLocks(engine).tryAcquire('a')).rejects.toThrow(
    /Failed to refresh slots cache: .*(ECONNREFUSED|closed)/,
  )
})
