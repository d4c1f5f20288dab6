import { expect, test } from 'vitest'
import type { Connection } from '../../sim/network.ts'
import { REAL_DRIVERS } from '../../sim/plan.ts'
import { overSockets } from '../../sim/sockets/run.ts'
import { SubscriptionsRun, type SubscriptionsOutcome } from '../../sim/subscriptions.ts'
import { quiet, Stage } from '../../sim/scenarios/stage.ts'

const SEEDS = 300

async function outcomes(proves: boolean): Promise<SubscriptionsOutcome[]> {
  const all: SubscriptionsOutcome[] = []
  for (let seed = 1; seed <= SEEDS; seed++) all.push(await new SubscriptionsRun(seed, { proves }).run())
  return all
}

test('whatever happens to subscriber connections, every message is heard, or a gap is told in time', async () => {
  const all = await outcomes(true)
  expect(all.flatMap(({ wrong }, index) => wrong.map((what) => `seed ${index + 1}: ${what}`))).toEqual([])
  // A simulation in which nothing happens proves nothing.
  expect(all.reduce((sum, { heard }) => sum + heard, 0)).toBeGreaterThan(20 * SEEDS)
  expect(all.reduce((sum, { gaps }) => sum + gaps, 0)).toBeGreaterThan(SEEDS)
}, 120_000)

test.each(REAL_DRIVERS)(
  'the same of the subscriber connections of %s itself, over simulated sockets',
  async (driver) => {
    const seeds = Array.from({ length: 15 }, (_, index) => index + 1)
    let [heard, gaps] = [0, 0]
    for (const seed of seeds) {
      const outcome = await overSockets(driver, (wire) => new SubscriptionsRun(seed, { wire }).run())
      expect(outcome.wrong, `seed ${seed}`).toEqual([])
      heard += outcome.heard
      gaps += outcome.gaps
    }
    expect(heard).toBeGreaterThan(20 * seeds.length)
    expect(gaps).toBeGreaterThan(seeds.length)
  },
  120_000,
)

test('connections that nobody looks after would be found', async () => {
  expect((await outcomes(false)).flatMap(({ wrong }) => wrong)).toContainEqual(
    expect.stringContaining('no gap was told'),
  )
}, 120_000)

test.each([1, 3, 5])(
  'a waiter whose subscriber connections to %i nodes die without a word has others before the release, and hears of it',
  async (nodes) => {
    const RELEASED_MS = 9000
    const stage = new Stage(quiet({ nodes, ttlMs: 60_000, maxTtlMs: 60_000 }))
    const subscribers = (): Connection[] =>
      stage.world.servers.flatMap(({ name }) =>
        [...stage.world.network.link('p1', name).connections].filter(({ isSubscriber }) => isSubscriber),
      )
    let died: Connection[] = []
    let replaced: Connection[] = []
    stage.start(0, 0, async () => {
      const lease = await stage.acquire(0)
      await stage.sleep(0, RELEASED_MS)
      await stage.release(0, lease!)
    })
    stage.start(100, 1, async () => void (await stage.acquire(1, { waitMs: 30_000 })))
    stage.at(1000, () => {
      died = subscribers()
      for (const connection of died) connection.forget('both')
    })
    stage.at(RELEASED_MS - 1, () => {
      replaced = subscribers()
    })
    await stage.play(40_000)
    expect(died).toHaveLength(nodes)
    expect(replaced).toHaveLength(nodes)
    expect(replaced.filter((connection) => died.includes(connection))).toEqual([])
    // A waiter that was not told would look again after 2.5 to 5 seconds.
    expect(stage.done.get('p1')! - RELEASED_MS).toBeLessThan(100)
  },
)
