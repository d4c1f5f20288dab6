import { Redis as Ioredis } from 'ioredis'
import { afterAll, beforeAll } from 'vitest'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { Redis as ModelRedis, ServerError } from '../../../sim/redis.ts'

/** A Redis on which scripts are run one by one. */
export interface Subject {
  run(...command: string[]): Promise<unknown>
  nowUs(): Promise<number>
  /** Moves its clock ahead. */
  pass(ms: number): void
  /** What was published. */
  readonly told: string[]
  reset(): Promise<void>
}

let server: RedisServer
let client: Ioredis
let listener: Ioredis

async function start(): Promise<void> {
  server = await startRedis({ clockShift: true })
  client = new Ioredis(server.url)
  listener = new Ioredis(server.url)
  await listener.subscribe('c', 'c2')
}

async function stop(): Promise<void> {
  client.disconnect()
  listener.disconnect()
  await server.stop()
}

function real(): Subject {
  let shiftMs = 0
  const told: string[] = []
  listener.removeAllListeners('message')
  listener.on('message', (_channel, message) => told.push(message))
  return {
    told,
    run: async (name = '', ...args) => {
      const reply = await client.call(name, ...args)
      // Messages of the command before arrive before the answer to this.
      await listener.ping()
      return reply
    },
    nowUs: async () => {
      const [seconds, micros] = await client.time()
      return Number(seconds) * 1e6 + Number(micros)
    },
    pass: (ms) => server.shiftClock((shiftMs += ms)),
    reset: async () => {
      server.shiftClock(0)
      await client.flushall()
    },
  }
}

function model(): Subject {
  let nowMs = 1_700_000_000_000
  const told: string[] = []
  const redis = new ModelRedis(() => nowMs, {
    publish: (_channel, message) => {
      told.push(message)
      return 1
    },
  })
  return {
    told,
    run: async (...command) => {
      const reply = redis.run(command)
      if (reply instanceof ServerError) throw reply
      return reply
    },
    nowUs: async () => nowMs * 1000,
    pass: (ms) => (nowMs += ms),
    reset: async () => undefined,
  }
}

/** A real Redis, and the simulator's. To be called once in a file. */
export function bothSubjects(): [string, () => Subject][] {
  beforeAll(start)
  afterAll(stop)
  return [
    ['a real Redis', real],
    ['the simulated one', model],
  ]
}
