import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { lostUpdates } from '../../sim/checkers/guard.ts'
import { drawPlan } from '../../sim/draw.ts'
import { REAL_DRIVERS, type Plan } from '../../sim/plan.ts'
import { Seeded } from '../../sim/random.ts'
import { play } from '../../sim/play.ts'
import { shrink } from '../../sim/shrink.ts'

async function hashOf(seed: number, over: Pick<Plan, 'over'> = {}): Promise<string> {
  const { world } = await play({ ...drawPlan(seed), ...over })
  return createHash('sha256').update(world.history.text()).digest('hex')
}

test('the same seed gives the same history, byte for byte, whatever ran before and whenever garbage is collected', async () => {
  const seeds = [3, 14, 15, 92, 65, 35]
  const first: string[] = []
  for (const seed of seeds) first.push(await hashOf(seed))
  globalThis.gc?.()
  const again: string[] = []
  for (const seed of seeds.toReversed()) {
    again.unshift(await hashOf(seed))
    globalThis.gc?.()
  }
  expect(again).toEqual(first)
  expect(new Set(first).size).toBe(seeds.length)
})

test.each(REAL_DRIVERS)(
  'with %s itself the same seed gives the same history, too, and another one than without',
  async (over) => {
    // The last one has a single node, the one before it pools.
    const seeds = [14, 9, 13]
    expect(drawPlan(13).engine).toBe('redis')
    for (const seed of seeds) {
      const first = await hashOf(seed, { over })
      expect(await hashOf(seed, { over })).toBe(first)
      expect(await hashOf(seed)).not.toBe(first)
    }
  },
)

test('a plan is data: it survives JSON and gives the same history', async () => {
  const plan = drawPlan(42)
  const copy = JSON.parse(JSON.stringify(plan)) as typeof plan
  const [one, other] = [await play(plan), await play({ ...copy, leaveFrozen: copy.leaveFrozen ?? undefined })]
  expect(other.world.history.text()).toBe(one.world.history.text())
})

test('forks of a generator do not depend on what was drawn before', () => {
  const [one, other] = [new Seeded('x'), new Seeded('x')]
  one.fraction()
  expect(one.fork('y').id()).toBe(other.fork('y').id())
  expect(one.fork('y').id()).not.toBe(other.fork('z').id())
})

test('a schedule shrinks to the faults that matter', async () => {
  const seed = await firstLoss()
  const outcome = await play(drawPlan(seed))
  const loses = ({ world }: typeof outcome): boolean => lostUpdates(world.history, 'unguarded').length > 0
  const small = await shrink(outcome, loses)
  expect(loses(small)).toBe(true)
  expect(small.plan.faults.length).toBeLessThan(outcome.plan.faults.length)
  for (const index of small.plan.faults.keys()) {
    const without = small.plan.faults.filter((_, at) => at !== index)
    expect(loses(await play({ ...small.plan, faults: without }))).toBe(false)
  }
})

/** A seed with some faults in which the store without a guard loses an update. */
async function firstLoss(): Promise<number> {
  for (let seed = 1; seed < 500; seed++) {
    const plan = drawPlan(seed)
    if (plan.faults.length < 4 || plan.faults.length > 12) continue
    const { world } = await play(plan)
    if (lostUpdates(world.history, 'unguarded').length > 0) return seed
  }
  throw new Error('no seed below 500 loses an update')
}
