import { redisGuard, type RedisGuard } from '../src/guards/redis.ts'
import { SimClient, type Driver } from './client.ts'
import { MachineClock } from './clock.ts'
import type { History } from './history.ts'
import type { Network } from './network.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import { Server } from './server.ts'

/** An effect of which can be told how often it has happened, and by whose call. KEYS: its counter. ARGV: the caller's name for it. */
const EFFECT = `
local count = tonumber(redis.call('get', KEYS[1]) or '0') + 1
redis.call('set', KEYS[1], string.format('%.0f', count))
return ARGV[1] .. ' made it ' .. string.format('%.0f', count)`

/** How long a process waits for the store: shorter than in real life, so that it gives up within a run. */
const TIMEOUT_MS = 1000

/** What is to happen once. Where `keepMs` is given, its record is kept for that long only. */
export interface Wanted {
  readonly resource: string
  readonly key: string
  readonly keepMs: number | undefined
}

/** The store of the effects: a Redis server of its own, which forgets nothing, under the guard that is shipped. */
export class EffectStore {
  readonly #network: Network
  readonly #history: History
  readonly #server: Server

  constructor(network: Network, history: History, random: Seeded) {
    this.#network = network
    this.#history = history
    const clock = new MachineClock(network.time, { rate: 1, aheadMs: 0, monotonicMs: 86_400_000 })
    this.#server = new Server('store', network.time, clock, random, { persistence: 'always' })
    const counts = new Map<string, unknown>()
    this.#server.executed = ({ process }, { commands: [command = []] }, [reply]) => {
      const keys = command.slice(3, 3 + Number(command[2]))
      const [, token = '', , , keepMs = ''] = command.slice(3 + keys.length)
      const [verdict, record] = Array.isArray(reply) ? (reply as readonly unknown[]) : []
      if (verdict !== 'done' || !Array.isArray(record)) return
      const counter = keys.at(-1)!
      const count = this.#server.redis.run(['GET', counter])
      const ran = counts.get(counter) !== count
      counts.set(counter, count)
      const [resource = '', key = ''] = counter.split(' ')
      this.#history.add({
        at: network.time.nowMs,
        kind: 'effect',
        process: process.name,
        resource,
        key,
        token: Number(token),
        ran,
        keepMs: keepMs === '' ? Infinity : Number(keepMs),
        value: valueIn(record),
      })
    }
  }

  guard(process: Process, random: Seeded, driver: Driver): RedisGuard {
    const client = new SimClient({
      network: this.#network,
      process,
      server: this.#server,
      random: random.fork('connection'),
      driver,
      describe: () => ({ steps: [] }),
      sent: () => undefined,
      heard: () => undefined,
      dropped: () => undefined,
    })
    return redisGuard(client, { clock: process, random: random.fork('guard'), requestTimeout: TIMEOUT_MS })
  }
}

export function scriptOf({ resource, key }: Wanted, name: string): { script: string; keys: string[]; args: string[] } {
  return { script: EFFECT, keys: [`${resource} ${key}`], args: [name] }
}

function valueIn(record: readonly unknown[]): string {
  return String(JSON.parse(String(record[4])))
}
