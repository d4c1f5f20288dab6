import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { isType, type Message } from './setup.ts'

/** A lock of a dead process is in everybody's way for this long. */
const TTL_MS = 2000
/** Well within the half of the ttl in which the workers write. */
const SHORT_MS = 250
const KEY = 'mutex:section'
const PEERS = ['redlock 4', 'redlock 5 beta', '@sesamecare-oss/redlock', 'redlock-universal', 'redis-semaphore']
const OURS = ['ringfence', 'ringfence/redlock']
const FLEET = [...PEERS, ...OURS]
/** Enough that half of a fair share is far from chance. */
const SECTIONS = 150

/**
 * What is promised to a fleet of several libraries: nobody is in the section together with another whose ttl is not over. A
 * process that slept past its ttl would overlap with the next one whatever its library does; the workers look at
 * their clock before they write, so no update is lost to that either.
 */
test.concurrent.each([1, 5])(
  'seven members on the same key of %i: no update is lost, each sleeps or dies in the middle, each of ours gets half of its fair share',
  { timeout: 120_000 },
  async (size) => {
    const group = await startRedisNodes(size)
    await using store = await startRedis()
    const client = new Redis({ host: store.host, port: store.port })
    const nodes = group.nodes.map(({ host, port }) => new Redis({ host, port }))
    const workers: Worker<Message>[] = []
    try {
      const env = {
        FLEET_PORTS: group.nodes.map(({ port }) => port).join(','),
        FLEET_STORE: String(store.port),
        FLEET_TTL_MS: String(TTL_MS),
      }
      const start = (library: string): Worker<Message> => {
        const file = new URL('./workers/fleet.mjs', import.meta.url)
        const worker = startWorker<Message>(file, { env: { ...env, FLEET_LIBRARY: library } })
        workers.push(worker)
        return worker
      }
      const fleet = FLEET.map(start)
      await Promise.all(fleet.map(begin))

      // Every one of them is in the race before anything is counted.
      for (const worker of fleet) await worker.next(isType('wrote'), { withinMs: 40_000, what: 'first section' })
      const before = await client.llen('sections')
      await until(async () => (await client.llen('sections')) >= before + SECTIONS, {
        what: 'sections',
        withinMs: 60_000,
      })
      const counted = await client.lrange('sections', before, before + SECTIONS - 1)
      const ofEach = (library: string): number => counted.filter((each) => each === library).length
      for (const ours of OURS) expect(ofEach(ours)).toBeGreaterThanOrEqual((0.5 * SECTIONS) / FLEET.length)

      const others = async (): Promise<void> => {
        const then = await client.llen('sections')
        await until(async () => (await client.llen('sections')) > then + 3, { what: 'others go on', withinMs: 60_000 })
      }
      // A short sleep of each: the lock is still its own when it wakes.
      await Promise.all(
        fleet.map(async (worker) => {
          await inSection(worker)
          await worker.pause()
          await pause(SHORT_MS)
          await goOn(worker)
        }),
      )
      // A long one of every other: others go on meanwhile, and the sleeper does not write. The rest die in their section; on
      // the other size they sleep, and those that sleep here die.
      await Promise.all(
        FLEET.map(async (library, index) => {
          const worker = fleet[index]!
          await inSection(worker)
          if (index % 2 === (size === 1 ? 0 : 1)) {
            await worker.pause()
            await others()
            await goOn(worker)
            await worker.next(isType('was late'), { what: 'sign that it has not written' })
          } else {
            await worker.kill()
            fleet[index] = start(library)
            await begin(fleet[index])
            await others()
          }
        }),
      )
      for (const worker of fleet) worker.send({ type: 'end' })
      for (const worker of fleet) await worker.next(isType('done'), { withinMs: 40_000, what: 'end' })

      expect(Number(await client.get('count'))).toBe(await client.llen('sections'))
      const keys = await Promise.all(nodes.map((node) => node.exists(KEY)))
      expect(keys).toEqual(nodes.map(() => 0))
    } finally {
      for (const worker of workers) await worker[Symbol.asyncDispose]()
      for (const each of [client, ...nodes]) each.disconnect()
      await group.stop()
    }
  },
)

async function begin(worker: Worker<Message>): Promise<void> {
  await worker.next(isType('ready'), { withinMs: 40_000, what: 'sign of life' })
  worker.send({ type: 'go' })
}

/** In the middle of a section of its own. */
async function inSection(worker: Worker<Message>): Promise<void> {
  worker.send({ type: 'stay' })
  await worker.next(isType('stays'), { withinMs: 60_000, what: 'section to stay in' })
}

async function goOn(worker: Worker<Message>): Promise<void> {
  worker.send({ type: 'go on' })
  await worker.resume()
}
