import { expect, test } from 'vitest'
import { failed } from '../../sim/checkers/all.ts'
import { drawPlan } from '../../sim/draw.ts'
import { CURRENT } from '../../sim/library.ts'
import { hasOlder, olderLibrary } from '../../sim/older.ts'
import type { Plan } from '../../sim/plan.ts'
import { play } from '../../sim/play.ts'

/** A seed of `drawPlan` in which some processes are of an older version. */
function mixed(from: number): Plan {
  for (let seed = from; ; seed++) {
    const plan = drawPlan(seed)
    if (plan.processes.some(({ isOlder }) => isOlder)) return plan
  }
}

test.runIf(hasOlder())('the older version has other scripts', async () => {
  const { scripts } = await olderLibrary()
  for (const name of ['EXTEND', 'RELEASE', 'HAND_OVER'] as const)
    expect(scripts[name].sha).not.toBe(CURRENT.scripts[name].sha)
})

test.runIf(hasOlder())(
  'in a mixed fleet both get leases, and the same seed gives the same history',
  { timeout: 120_000 },
  async () => {
    for (const plan of [mixed(1), mixed(500)]) {
      const { world, verdicts } = await play(plan)
      expect(failed(verdicts)).toEqual([])
      const older = new Set(world.history.of('start').flatMap(({ process, isOlder }) => (isOlder ? [process] : [])))
      const holders = world.history.of('holds').map(({ process }) => older.has(process))
      expect(new Set(holders)).toEqual(new Set([true, false]))
      expect((await play(plan)).world.history.text()).toBe(world.history.text())
    }
  },
)
