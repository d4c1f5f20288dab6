import { expect, test } from 'vitest'
import { check, failed } from '../../sim/checkers/all.ts'
import { CORPUS, planOf } from '../../sim/corpus.ts'
import { MUTATIONS } from '../../sim/gate/mutations.ts'
import { run } from '../../sim/run.ts'
import { cut, quiet, Stage } from '../../sim/scenarios/stage.ts'

/** Bugs that the simulator has found, each in the smallest play that shows it. */

test('a node that forgot its counters numbers higher when it votes again, however far the clients’ clocks are apart', async () => {
  const plan = quiet({ ttlMs: 1000, maxTtlMs: 1000 })
  const [ahead, behind] = plan.processes
  const stage = new Stage({
    ...plan,
    processes: [
      { ...ahead!, aheadMs: 3000 },
      { ...behind!, aheadMs: -3000 },
    ],
  })
  const turn = async (process: number, waitMs = 0): Promise<bigint | undefined> => {
    const lease = await stage.acquire(process, { waitMs })
    if (lease !== undefined) await stage.release(process, lease)
    return lease?.token
  }
  let before: bigint | undefined
  let after: bigint | undefined
  stage.start(0, 1, async () => void (await turn(1)))
  stage.at(190, () => {
    cut(stage, 0, [2])
    cut(stage, 1, [0])
  })
  stage.start(200, 0, async () => {
    before = await turn(0)
  })
  stage.at(300, () => {
    stage.world.servers[1]!.crash()
    stage.world.servers[1]!.restart('none')
  })
  stage.start(310, 1, async () => {
    after = await turn(1, 10_000)
  })
  await stage.play(12_000)
  expect(before).toBeDefined()
  expect(after).toBeGreaterThan(before!)
  expect(check(stage.history).find(({ checker }) => checker === 'tokens')).toMatchObject({ verdict: 'true' })
})

test('a waiter without a quorum backs off instead of waking itself by its own withdrawals', async () => {
  const stage = new Stage(quiet({ processes: 1 }))
  // All have been in use, then two of three forget and sit out: every attempt gets one vote and lets go of it.
  stage.start(0, 0, async () => {
    const lease = await stage.acquire(0)
    if (lease !== undefined) await stage.release(0, lease)
  })
  stage.at(100, () => {
    for (const server of stage.world.servers.slice(1)) {
      server.crash()
      server.restart('none')
    }
  })
  stage.start(200, 0, async () => void (await stage.acquire(0, { waitMs: 3000 })))
  await stage.play(3500)
  const attempts = stage.history.of('attempt').filter(({ at }) => at > 200)
  expect(attempts.length).toBeGreaterThan(2)
  expect(attempts.length).toBeLessThan(20)
})

test.each([
  // Two of the three that are left can be had: every round is a split one.
  [5, 'the others are enough', 'held', 1500],
  [3, 'the others are not enough', 'no quorum', 500],
])(
  'of %d nodes one sits out and one is silent, %s: who does not wait is soon told',
  async (nodes, _what, outcome, withinMs) => {
    const stage = new Stage(quiet({ nodes, processes: 1 }))
    stage.start(0, 0, async () => {
      const lease = await stage.acquire(0)
      if (lease !== undefined) await stage.release(0, lease)
    })
    stage.at(100, () => {
      stage.world.servers[0]!.crash()
      stage.world.servers[0]!.restart('none')
      cut(stage, 0, [1])
      stage.world.servers[4]?.redis.run(['SET', 'a', 'somebody', 'PX', '60000'])
    })
    stage.start(200, 0, async () => void (await stage.acquire(0)))
    await stage.play(30_000)
    const { call, at } = stage.history.of('call').at(-1)!
    const returned = stage.history.of('return').find((event) => event.call === call)
    expect(returned?.outcome).toBe(outcome)
    expect(returned!.at - at).toBeLessThan(withinMs)
  },
)

test.each(CORPUS.map((find) => [find.seed, find.found, find] as const))('seed %d: %s', async (_seed, _found, find) => {
  const plan = planOf(find)
  const kinds = plan.faults.map(({ kind }) => kind)
  expect(find.needs.length).toBeGreaterThan(0)
  expect(kinds).toEqual(expect.arrayContaining([...find.needs]))
  const { world, verdicts } = await run(plan)
  expect(world.history.of('holds').length).toBeGreaterThan(10)
  expect(failed(verdicts)).toEqual([])
})

test('every bug that the corpus names is in the gate', () => {
  const known = MUTATIONS.map(({ name }) => name)
  const named = CORPUS.flatMap(({ bug }) => (bug === undefined ? [] : [bug]))
  expect(named).toHaveLength(5)
  expect(known).toEqual(expect.arrayContaining(named))
})
