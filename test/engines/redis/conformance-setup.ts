import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { OptionalMethod } from '../../../src/conformance/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { conformanceOfTwo } from '../conformance.ts'
import type { Connected } from './drivers-clients.ts'

/** An engine, the clients it is made from, and the servers behind them, which are there when the tests run. */
export interface Setup {
  readonly name: string
  engine(clients: readonly unknown[]): Engine
  /** The optional methods of that engine. */
  readonly methods: readonly OptionalMethod[]
  servers(): readonly RedisServer[]
  connect(): readonly Promise<Connected>[]
}

export function testConformance(setups: readonly Setup[]): void {
  describe.each(setups.map((setup) => [setup.name, setup] as const))('%s', (_name, setup) => {
    const processes: Connected[][] = []
    let asked = 0

    beforeAll(async () => {
      for (let i = 0; i < 2; i++) processes.push(await Promise.all(setup.connect()))
    })

    afterAll(async () => {
      for (const connected of processes.flat()) await connected.close()
    })

    // The engine is given what a user has, and recognises it.
    const engine = (process: number): Engine => {
      asked++
      return setup.engine(processes[process]!.map(({ client }) => client.identity))
    }
    const cases = conformanceOfTwo({ engine, methods: setup.methods, shared: true, shortTtlMs: 300 })

    test.concurrent.each(cases.map((claim) => [claim.name, claim] as const))('%s', async (_name, claim) => {
      await expect(claim.run()).resolves.toBeUndefined()
    })

    test('nothing is left on the servers but counters: no lock, no subscription', async () => {
      for (const server of setup.servers()) await expect.poll(() => leftovers(server), { timeout: 25_000 }).toEqual([])
      expect(asked).toBeGreaterThan(0)
    })
  })
}

async function leftovers(server: RedisServer): Promise<string[]> {
  const lists = [
    await server.cli('KEYS', '*'),
    await server.cli('PUBSUB', 'CHANNELS', 'ringfence:freed:*'),
    await server.cli('PUBSUB', 'SHARDCHANNELS', '*'),
  ]
  const names = lists.flatMap((list) => list.split('\n'))
  return names.filter((name) => name !== '' && name !== 'ringfence:stamp' && !name.startsWith('ringfence:fence:'))
}

/** What follows from the short ttl of some cases, a node timeout of 50 ms, is too little for a busy machine. */
const requestTimeout = '3s'

const METHODS = ['handOver', 'adopt', 'leave', 'enqueue', 'watch', 'unanswered', 'probe', 'init'] as const

export const oneRedis: Pick<Setup, 'engine' | 'methods'> = {
  engine: ([client]) => redis(client, { requestTimeout }),
  methods: METHODS,
}

export const quorumOfRedis: Pick<Setup, 'engine' | 'methods'> = {
  engine: (clients) => redlock(clients, { requestTimeout }),
  methods: [...METHODS, 'observe'],
}
