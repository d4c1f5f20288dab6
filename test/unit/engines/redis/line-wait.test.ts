import { expect, test } from 'vitest'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'
import { Deadlines } from '../../../../src/deadlines.ts'
import { failureOf, NotSentError } from '../../../../src/engines/redis/errors.ts'
import { keySet } from '../../../../src/engines/redis/keys.ts'
import type { LineAnswer, LinePlace } from '../../../../src/engines/redis/line-steps.ts'
import { LineWait, type RedisQueuePlan } from '../../../../src/engines/redis/line-wait.ts'
import type { NodeFailure } from '../../../../src/errors.ts'
import { OtherSoftware } from '../../../../src/other-software.ts'
import { systemRandom } from '../../../../src/random.ts'

const OWNER = `${'1'.repeat(32)}@us`
const BEHIND: LineAnswer = { kind: 'behind', holder: `${'2'.repeat(32)}@them`, remainingMs: 5000 }

/** A wait in the lines of three nodes that answer when they are told to. */
function waiting(...resources: readonly string[]) {
  return waitingAfter(0, resources)
}

/** As many of its claims are lost before one is won. */
function waitingAfter(lostClaims: number, resources: readonly string[]) {
  const clock = new ManualClock(0)
  const asked: number[] = [0, 0, 0]
  const answers: ((answer: LineAnswer | Promise<never>) => void)[] = []
  const told: (Error | undefined)[] = []
  const places: LinePlace[][] = [[], [], []]
  const released: string[][] = [[], [], []]
  let offered!: (index: number, owner: string) => void
  let claims = 0
  let owners = 0
  const nodes = asked.map((_, index) => ({
    label: `n${index}`,
    client: {},
    enqueue: (_keys: unknown, place: LinePlace) => {
      asked[index]!++
      places[index]!.push(place)
      return new Promise<LineAnswer>((resolve) => (answers[index] = resolve))
    },
    release: (_keys: unknown, owner: string) => {
      released[index]!.push(owner)
      return Promise.resolve({ ours: false, listeners: 0 })
    },
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
    claim: () => {
      const outcome = claims++ < lostClaims ? undefined : { kind: 'granted', token: 7n }
      return Promise.resolve(outcome)
    },
    failure: (failures: readonly NodeFailure[], resources: readonly string[]) =>
      failureOf(failures, resources, { quorum: 2, size: 3 }),
  } as unknown as RedisQueuePlan
  const failing = (cause: Error | undefined): void => void told.push(cause)
  const request = { resources, owner: OWNER, ttlMs: 30_000, failing }
  const wait = new LineWait(plan, request, () => `owner ${++owners}`, new OtherSoftware(clock, systemRandom), 0)
  const grant = wait.run(new AbortController().signal)
  return {
    clock,
    asked,
    places,
    released,
    get claims() {
      return claims
    },
    told,
    grant,
    answer: (index: number, answer: LineAnswer) => answers[index]!(answer),
    fail: (index: number, error: Error) => answers[index]!(Promise.reject(error)),
    offer: (index: number) => offered(index, OWNER),
  }
}

test('an offer that is told before an older answer is read is not lost: the node is asked again', async () => {
  const it = waiting('a')
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
  const it = waiting('a')
  await settled()
  for (const index of [0, 1, 2]) it.answer(index, BEHIND)
  await settled()
  expect(it.asked).toEqual([1, 1, 1])
  it.offer(0)
  it.offer(1)
  expect(await it.grant).toMatchObject({ token: 7n })
})

test('of several resources an offer of one is no offer of all: the nodes are asked, and nothing is claimed', async () => {
  const it = waiting('a', 'b')
  await settled()
  for (const index of [0, 1, 2]) it.answer(index, BEHIND)
  await settled()
  for (const index of [0, 1, 2]) it.offer(index)
  await settled()
  expect(it.asked).toEqual([2, 2, 2])
  expect(it.claims).toBe(0)
  for (const index of [0, 1]) it.answer(index, { kind: 'offered' })
  expect(await it.grant).toMatchObject({ token: 7n })
  expect(it.claims).toBe(1)
})

test('tells its caller when too few nodes answer, and when enough of them do again', async () => {
  const it = waiting('a')
  await settled()
  for (const index of [0, 1, 2]) it.answer(index, BEHIND)
  await it.clock.advance(1000)
  expect(it.asked).toEqual([2, 2, 2])
  it.answer(0, BEHIND)
  it.fail(1, new Error('connect ECONNREFUSED'))
  await it.clock.advance(999)
  expect(it.told).toEqual([])
  // One has failed, and the other has not answered since a request was due.
  await it.clock.advance(1)
  const nodes = [
    { node: 'n1', cause: { message: 'connect ECONNREFUSED' } },
    { node: 'n2', cause: { message: 'no answer within 1000 ms' } },
  ]
  expect(it.told).toMatchObject([{ code: 'QUORUM', transient: true, nodes }])
  it.answer(2, BEHIND)
  await settled()
  expect(it.told.slice(1)).toEqual([undefined])
  for (const index of [0, 1]) it.answer(index, { kind: 'offered' })
  expect(await it.grant).toMatchObject({ token: 7n })
})

test('gives up at once when too many of its clients are closed', async () => {
  const it = waiting('a')
  await settled()
  it.answer(0, BEHIND)
  for (const index of [1, 2]) it.fail(index, new NotSentError('its client cannot be used: it is closed', true))
  await expect(it.grant).rejects.toMatchObject({ code: 'QUORUM', transient: false })
})

test('an answer to an owner before the last one gives up its place, and what the last one may have is not forgotten', async () => {
  const it = waitingAfter(2, ['a'])
  await settled()
  // The third node is slow: it answers to the first owner when the claims of two have been lost.
  for (const owner of [OWNER, 'owner 1']) {
    for (const index of [0, 1]) it.answer(index, { kind: 'offered' })
    await settled()
    expect(it.places[0]!.at(-1)).toMatchObject({ old: owner })
  }
  it.answer(2, BEHIND)
  await settled()
  expect(it.released[2]).toEqual([OWNER, OWNER])
  expect(it.places[2]!.at(-1)).toMatchObject({ owner: 'owner 2', old: 'owner 1' })
  for (const index of [0, 1]) it.answer(index, { kind: 'offered' })
  expect(await it.grant).toMatchObject({ token: 7n, owner: 'owner 2' })
})
