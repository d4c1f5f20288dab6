import { Redis } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import { createClient, SocketClosedUnexpectedlyError } from 'redis'
import type { RedisClient } from '../../src/engines/redis/client.ts'
import { ioredis, iovalkey, nodeRedis, redis, redlock } from '../../src/engines/redis/index.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { ServerError, type Reply } from '../../sim/redis.ts'
import { inWords, partOf } from '../../sim/steps-in-words.ts'
import { NOT_UNDONE, type Courier } from '../courier.ts'
import type { Left, Target } from '../target.ts'

/** Later than any start of a server: it has run for long, and cannot have forgotten a lease. */
const WALL_MS = 2_000_000_000_000

/** Leases on one Redis by ioredis and by node-redis, on a server whose clock stands still between two requests. */
export function redisTarget(): Promise<Target> {
  return openTarget('redis', 1)
}

/** The same on three, by votes. */
export function redlockTarget(): Promise<Target> {
  return openTarget('redlock', 3)
}

/** The same on one Valkey. */
export function valkeyTarget(): Promise<Target> {
  return openTarget('valkey', 1)
}

async function openTarget(name: 'redis' | 'redlock' | 'valkey', count: number): Promise<Target> {
  const isValkey = name === 'valkey'
  const options = { clockShift: true, valkey: isValkey }
  const servers = await Promise.all(Array.from({ length: count }, () => startRedis(options)))
  // Its own driver is a fork of ioredis.
  const clients = servers.map(({ url }) => (isValkey ? (new Valkey(url) as unknown as Redis) : new Redis(url)))
  const others = await Promise.all(servers.map(({ url }) => createClient({ url }).connect()))
  const stop = (nowMs: number): void => {
    for (const server of servers) server.stopClock(nowMs)
  }
  return {
    name,
    wrong: { [HALF]: 'exclusion', ...NOT_UNDONE },
    bounds: { ttlMs: [500, 2000], shared: true, repeats: false, sendsAgain: true },
    lateMs: name === 'redlock' ? 5_000 : 1_500,
    async begin() {
      // Also the scripts: which of them a server knows decides what it is sent.
      await Promise.all(clients.flatMap((client) => [client.flushall(), client.script('FLUSH')]))
      stop(WALL_MS)
      return WALL_MS
    },
    clock: stop,
    open({ courier, process, random, driver, wrong }) {
      const own = isValkey ? iovalkey : ioredis
      const reals = driver < 0.6 ? clients.map((client) => own(client)) : others.map((client) => nodeRedis(client))
      const nodes = reals.map((real, node) => carried(courier, { real, node: `n${node}`, wrong }))
      return name === 'redlock'
        ? redlock(nodes, { clock: process, random, maxTtl: 8000, restart: 'trust' })
        : redis(nodes[0]!, { clock: process })
    },
    async left(_nowMs, names) {
      const all = await Promise.all(clients.map((client) => locksOf(client, names)))
      return all.flat()
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.disconnect()
      for (const client of others) client.destroy()
      await Promise.all(servers.map((server) => server.stop()))
    },
  }
}

interface How {
  readonly real: RedisClient
  readonly node: string
  readonly wrong: string | undefined
}

/** What the library makes of a driver's client, with its commands carried and without a connection for subscriptions. */
function carried(courier: Courier, { real, node, wrong }: How): RedisClient {
  const { driver, identity } = real
  const send = <T>(
    commands: readonly (readonly string[])[],
    work: (sent: string[][]) => Promise<T>,
    all: boolean,
  ): Promise<T> => {
    const steps = inWords(commands, () => 0)
    return courier.carry({
      node,
      // ioredis and its fork do (`autoResendUnfulfilledCommands`); node-redis rejects what was under way.
      sendsAgain: driver !== 'node-redis',
      words: steps.map(({ what, owner, former }) => ({ what, owner, former })),
      visit: () => work(commands.map((command) => (wrong === HALF ? halved(command) : [...command]))),
      replies: (answer) => {
        // Of everything else only that it was answered: the numbers of a server differ every time.
        if (commands[0]![0] !== 'EVALSHA' && commands[0]![0] !== 'EVAL') return ['answered']
        const [reply, ...others] = (all ? answer : [answer]) as readonly Reply[]
        return steps.length === 1 ? [reply ?? null, ...others] : steps.map((_, index) => partOf(reply, index))
      },
      refusals: (error) => steps.map(() => new ServerError(error instanceof Error ? error.message : String(error))),
      broken: () =>
        driver !== 'node-redis' ? new Error('Connection is closed.') : new SocketClosedUnexpectedlyError(),
    })
  }
  const run = (command: readonly string[]): Promise<unknown> => send([command], ([one]) => real.run(one!), false)
  return {
    driver,
    identity,
    label: node,
    cluster: false,
    unusable: () => undefined,
    run,
    runTogether: (commands, key) => send(commands, (sent) => real.runTogether(sent, key), true),
    masters: async () => [{ label: node, run }],
    subscriber: () => undefined,
  }
}

async function locksOf(client: Redis, names: readonly string[]): Promise<Left[]> {
  const left: Left[] = []
  for (const resource of names) {
    const owner = await client.get(resource)
    if (owner !== null) left.push({ resource, owner, leftMs: await client.pttl(resource) })
  }
  return left
}

const HALF = 'a lease of half of the time'

/** The times of a lease are the numbers of this size. */
function halved(command: readonly string[]): string[] {
  return command.map((argument) =>
    /^[1-9]\d{2,3}$/.test(argument) ? String(Math.floor(Number(argument) / 2)) : argument,
  )
}
