import { expect, test } from 'vitest'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'
import { Deadlines } from '../../../../src/deadlines.ts'
import { keySet } from '../../../../src/engines/redis/keys.ts'
import type { LineAnswer } from '../../../../src/engines/redis/line-steps.ts'
import { LineWait, type RedisQueuePlan } from '../../../../src/engines/redis/line-wait.ts'
import { OtherSoftware } from '../../../../src/other-software.ts'
import { systemRandom } from '../../../../src/random.ts'

const OWNER = `${'1'.repeat(32)}@us`
const BEHIND: LineAnswer = { kind: 'behind', holder: `${'2'.repeat(32)}@them`, remainingMs: 5000 }

/** A wait in the lines of three nodes that answer when they are told to. */
function waiting() {
  const clock = new ManualClock(0)
  const asked: number[] = [0, 0, 0]
  const answers: ((answer: LineAnswer) => void)[] = []
  let offered!: (index: number, owner: string) => void
  const nodes = asked.map((_, index) => ({
    label: `n${index}`,
    enqueue: () => {
      asked[index]!++
      return new Promise<LineAnswer>((resolve) => (answers[index] = resolve))
    },
    release: () => Promise.resolve({ ours: false, listeners: 0 }),
  }))
  const plan = {
    nodes,
    clock,
    random: systemRandom,
    deadlines: new Deadlines(clock),
    wakeups: {
      watch: (_names: unknown, _freed: unknown, told: typeof offered) => {
        offered = told
        return { armed: Promise.resolve(true), close: () => undefined }
      },
    },
    timeoutMs: () => 1000,
    keys: (resources: readonly string[]) => keySet('', resources),
    claim: () => Promise.resolve({ kind: 'granted', token: 7n }),
  } as unknown as RedisQueuePlan
  const request = { resources: ['a'], owner: OWNER, ttlMs: 30_000 }
  const wait = new LineWait(plan, request, () => OWNER, new OtherSoftware(clock, systemRandom), 0)
  const grant = wait.run(new AbortController().signal)
  return {
    clock,
    asked,
    grant,
    answer: (index: number, answer: LineAnswer) => answers[index]!(answer),
    offer: (index: number) => offered(index, OWNER),
  }
}

test('an offer that is told before an older answer is read is not lost: the node is asked again', async () => {
  const it = waiting()
  await settled()
  expect(it.asked).toEqual([1, 1, 1])
  for (const index of [0, 1, 2]) {
    it.offer(index)
    it.answer(index, BEHIND)
    await settled()
  }
  expect(it.asked).toEqual([2, 2, 2])
  it.answer(0, { kind: 'offered' })
  it.answer(1, { kind: 'offered' })
  expect(await it.grant).toMatchObject({ token: 7n, owner: OWNER })
})

test('an answer without an offer meanwhile is not asked for again before it is time', async () => {
  const it = waiting()
  await settled()
  for (const index of [0, 1, 2]) it.answer(index, BEHIND)
  await settled()
  expect(it.asked).toEqual([1, 1, 1])
  it.offer(0)
  it.offer(1)
  expect(await it.grant).toMatchObject({ token: 7n })
})
