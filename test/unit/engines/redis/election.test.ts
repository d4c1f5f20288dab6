import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Deadlines } from '../../../../src/deadlines.ts'
import { Election, type ElectionPlan } from '../../../../src/engines/redis/election.ts'
import { NoAnswerError } from '../../../../src/engines/shared/in-time.ts'
import { NotSentError } from '../../../../src/engines/redis/errors.ts'
import type { RedisNode } from '../../../../src/engines/redis/node.ts'
import type { NodeGrant, NodeRefusal } from '../../../../src/engines/redis/steps.ts'
import { quorumOf, type NodeAnswer } from '../../../../src/engines/redis/votes.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'
import { watched } from '../../bench.ts'

const TIMEOUT_MS = 100

/** What a node does with the acquire, when it answers, and how long it takes to confirm. */
interface Plan {
  readonly say: 'granted' | 'refused' | 'failed' | 'not sent' | 'never'
  readonly fence: number
  readonly delayMs: number
  readonly confirmMs: number
}

const plan = fc.record<Plan>({
  say: fc.constantFrom('granted', 'granted', 'granted', 'refused', 'failed', 'not sent', 'never'),
  fence: fc.integer({ min: 1, max: 4 }),
  delayMs: fc.nat(150),
  confirmMs: fc.nat(150),
})

const granted = (fence: number, delayMs = 1, confirmMs = 1): Plan => ({ say: 'granted', fence, delayMs, confirmMs })
const refused = (delayMs = 1): Plan => ({ say: 'refused', fence: 9, delayMs, confirmMs: 1 })
const failed = (delayMs = 1): Plan => ({ say: 'failed', fence: 0, delayMs, confirmMs: 1 })
const silent: Plan = { say: 'never', fence: 0, delayMs: 0, confirmMs: 1 }

/** The end of an election, with all that it tells. */
async function ended(election: Election) {
  const token = await new Promise<number | undefined>((resolve) => election.run(resolve))
  const { refusals, failures, highestFence } = election
  return { token, refusals, failures, highestFence, granted: election.granted(), doubtful: election.doubtful() }
}

function tell(to: Election, index: number, answer: Promise<NodeAnswer | NodeRefusal>): void {
  answer.then(
    (value) => to.answered(index, value),
    (error: Error) => to.failed(index, error),
  )
}

/** Runs an election over nodes that do as planned, honestly: what they confirm, they were granted before. */
function electing(plans: readonly Plan[], { inOrder = false, suspects = new Set<number>() } = {}) {
  const clock = new ManualClock(0)
  const nodes = plans.map((_, index) => ({ label: `n${index}` })) as RedisNode[]
  const seen = {
    asked: [] as [number, number][],
    confirms: [] as [number, number][],
    /** Votes that the election has heard of, and when. */
    votes: [] as { node: number; token: number; atMs: number }[],
    late: [] as number[],
    settled: 0,
    isOver: false,
    decidedAtMs: undefined as number | undefined,
  }
  const after = (ms: number): Promise<void> => new Promise((resolve) => void clock.timer(resolve, ms))
  /** F on the nodes, raised by what they confirm. */
  const fences = plans.map(({ fence }) => fence)
  const vote = (node: number, token: number): void => void seen.votes.push({ node, token, atMs: clock.monotonicMs() })
  async function acquire(index: number): Promise<NodeGrant | NodeRefusal> {
    const { say, fence, delayMs } = plans[index]!
    seen.asked.push([index, clock.monotonicMs()])
    if (say === 'never') return new Promise<never>(() => undefined)
    if (say === 'not sent') throw new NotSentError('not sent')
    await after(delayMs)
    if (say === 'failed') throw new Error('down')
    if (say === 'refused')
      return { kind: 'refused', fence, holder: 'rival', offered: false, shared: false, remainingMs: 500 }
    vote(index, fence)
    return { kind: 'granted', fence }
  }
  async function confirm(index: number, token: number): Promise<NodeAnswer> {
    const { say, confirmMs } = plans[index]!
    seen.confirms.push([index, token])
    if (say === 'never') return new Promise<never>(() => undefined)
    if (say === 'not sent') throw new NotSentError('not sent')
    await after(confirmMs)
    if (say === 'failed') throw new Error('down')
    if (say === 'refused') return { kind: 'out' }
    if (fences[index]! > token) return { kind: 'higher', fence: fences[index]! }
    fences[index] = token
    vote(index, token)
    return { kind: 'confirmed', token }
  }
  const election = new Election({
    nodes,
    deadlines: new Deadlines(clock),
    timeoutMs: TIMEOUT_MS,
    inOrder,
    suspects,
    acquire: (index, to) => tell(to, index, acquire(index)),
    confirm: (index, to, token) => tell(to, index, confirm(index, token)),
    late: (index) => void seen.late.push(index),
    lateRefusal: () => undefined,
    settled: () => void seen.settled++,
    isOver: () => seen.isOver,
  })
  const running = ended(election)
  const outcome = watched(running)
  void running.then(() => (seen.decidedAtMs = clock.monotonicMs()))
  return { clock, suspects, seen, outcome, election }
}

/** Long enough for every time-out of every round. */
const ALL_MS = 30 * TIMEOUT_MS

describe('an election over any nodes', () => {
  const someNodes = fc.array(plan, { minLength: 1, maxLength: 7 })
  const options = fc.record({ inOrder: fc.boolean() })

  test('ends, in bounded time, and leaves no timer behind', async () => {
    await fc.assert(
      fc.asyncProperty(someNodes, options, async (plans, options) => {
        const { clock, seen, outcome } = electing(plans, options)
        await clock.advance(ALL_MS)
        expect(outcome.state).toBe('resolved')
        // One for each node in order, one for all, one for each number to be confirmed.
        expect(seen.decidedAtMs).toBeLessThanOrEqual((plans.length + 1 + 4) * TIMEOUT_MS)
        expect(clock.timers).toBe(0)
      }),
      { numRuns: 150 },
    )
  })

  test('that is won rests on a quorum of votes for its token, heard before the decision', async () => {
    await fc.assert(
      fc.asyncProperty(someNodes, options, async (plans, options) => {
        const { clock, seen, outcome } = electing(plans, options)
        await clock.advance(ALL_MS)
        const { token } = outcome.value!
        fc.pre(token !== undefined)
        const voters = seen.votes.filter((vote) => vote.token === token && vote.atMs <= seen.decidedAtMs!)
        expect(new Set(voters.map(({ node }) => node)).size).toBeGreaterThanOrEqual(quorumOf(plans.length))
      }),
      { numRuns: 200 },
    )
  })

  test('is won when a quorum grants in time and all who grant confirm in time, whatever else the others do', async () => {
    const quick = fc.record<Plan>({
      say: fc.constant('granted'),
      fence: fc.integer({ min: 1, max: 4 }),
      delayMs: fc.nat(50),
      confirmMs: fc.nat(50),
    })
    const other = plan.map((plan): Plan => ({ ...plan, confirmMs: plan.confirmMs % 50 }))
    const some = fc
      .integer({ min: 1, max: 7 })
      .chain((size) =>
        fc.tuple(
          fc.array(quick, { minLength: quorumOf(size), maxLength: quorumOf(size) }),
          fc.array(other, { minLength: size - quorumOf(size), maxLength: size - quorumOf(size) }),
        ),
      )
    await fc.assert(
      fc.asyncProperty(some, async ([quick, others]) => {
        const { clock, outcome } = electing([...quick, ...others])
        await clock.advance(ALL_MS)
        expect(outcome.value!.token).toBeDefined()
      }),
      { numRuns: 300 },
    )
  })

  test('is lost when no quorum ever grants', async () => {
    await fc.assert(
      fc.asyncProperty(someNodes, options, async (plans, options) => {
        fc.pre(plans.filter(({ say }) => say === 'granted').length < quorumOf(plans.length))
        const { clock, outcome } = electing(plans, options)
        await clock.advance(ALL_MS)
        expect(outcome.value!.token).toBeUndefined()
      }),
    )
  })

  test('that is lost names every node on which something of it may have stayed, at once or when it is heard of', async () => {
    await fc.assert(
      fc.asyncProperty(someNodes, options, async (plans, options) => {
        const { clock, seen, outcome } = electing(plans, options)
        await clock.advance(ALL_MS)
        const { token, granted, doubtful } = outcome.value!
        fc.pre(token === undefined)
        const asked = new Set(seen.asked.map(([node]) => node))
        const touched = [...asked].filter((node) => ['granted', 'failed'].includes(plans[node]!.say))
        expect([...granted, ...doubtful, ...seen.late]).toEqual(expect.arrayContaining(touched))
        // Who said no, or was not even asked by the driver, has nothing to undo.
        const clean = [...asked].filter((node) => plans[node]!.say === 'not sent')
        expect(granted.filter((node) => clean.includes(node))).toEqual([])
      }),
      { numRuns: 150 },
    )
  })

  test('tells of every grant and failure that comes after the decision, and when all is answered, once', async () => {
    await fc.assert(
      fc.asyncProperty(someNodes, options, async (plans, options) => {
        const answering = plans.map((plan): Plan => (plan.say === 'never' ? { ...plan, say: 'granted' } : plan))
        const { clock, seen, outcome } = electing(answering, options)
        await clock.advance(ALL_MS)
        expect(outcome.state).toBe('resolved')
        const lateVoters = seen.votes.filter(({ atMs }) => atMs > seen.decidedAtMs!).map(({ node }) => node)
        expect(seen.late).toEqual(expect.arrayContaining(lateVoters))
        expect(seen.settled).toBe(1)
      }),
      { numRuns: 150 },
    )
  })
})

describe('an election', () => {
  test('is won with the first quorum of equal grants: it does not wait for the slow', async () => {
    const { clock, outcome, seen } = electing([granted(5, 10), granted(5, 90), granted(5, 20), silent, refused(15)])
    await clock.advance(89)
    expect(outcome.state).toBe('pending')
    await clock.advance(1)
    expect(outcome.value).toMatchObject({ token: 5, granted: [0, 1, 2], doubtful: [], highestFence: 9 })
    expect(seen.confirms).toEqual([])
  })

  test('wants no more votes once it is lost, or what was won is over', async () => {
    const won = electing([granted(5), granted(5), silent])
    await won.clock.advance(20)
    expect([won.outcome.value!.token, won.election.isWanted()]).toEqual([5, true])
    won.seen.isOver = true
    expect(won.election.isWanted()).toBe(false)
    const lost = electing([refused(5), refused(5), silent])
    await lost.clock.advance(20)
    expect(lost.election.isWanted()).toBe(false)
  })

  test('is lost with the first refusals that make it certain', async () => {
    const { clock, outcome } = electing([refused(10), granted(5, 5), refused(20), silent, refused(30)])
    await clock.advance(30)
    expect(outcome.value).toMatchObject({ token: undefined, granted: [1], doubtful: [] })
    expect(outcome.value!.refusals).toHaveLength(3)
  })

  test('asks nodes with a lower number to confirm the lowest that a quorum can accept', async () => {
    const { clock, outcome, seen } = electing([granted(3), granted(5), granted(9)])
    await clock.advance(50)
    expect(outcome.value).toMatchObject({ token: 5 })
    expect(seen.confirms).toContainEqual([0, 5])
  })

  test('does not ask for a lower number once it has asked for one: those who said yes could only say "higher"', async () => {
    const unsent: Plan = { ...silent, say: 'not sent' }
    const first = [granted(1, 35, 1), granted(2, 0, 12), granted(1, 0, 12), granted(1, 26, 0)]
    const { clock, outcome } = electing([...first, granted(4, 25, 0), unsent, granted(2, 0, 12)])
    await clock.advance(ALL_MS)
    expect(outcome.value!.token).toBeDefined()
  })

  test('gives up when the numbers keep rising: every time, a rival has just been granted', async () => {
    const clock = new ManualClock(0)
    let fence = 10
    const nodes = [0, 1, 2].map((index) => ({ label: `n${index}` })) as RedisNode[]
    let settled = 0
    const plan: ElectionPlan = {
      nodes,
      deadlines: new Deadlines(clock),
      timeoutMs: TIMEOUT_MS,
      inOrder: false,
      suspects: new Set(),
      acquire: (index, to) => tell(to, index, Promise.resolve({ kind: 'granted', fence: index + 1 })),
      confirm: (index, to) => tell(to, index, Promise.resolve({ kind: 'higher', fence: fence++ })),
      late: () => undefined,
      lateRefusal: () => undefined,
      settled: () => settled++,
      isOver: () => false,
    }
    const outcome = watched(ended(new Election(plan)))
    await clock.advance(10)
    expect(outcome).toMatchObject({ state: 'resolved', value: { token: undefined, granted: [0, 1, 2] } })
    expect(settled).toBe(1)
  })

  test('is over after its time-out, with the silent nodes as failures', async () => {
    const { clock, outcome, suspects } = electing([granted(5), silent, silent])
    await clock.advance(TIMEOUT_MS - 1)
    expect(outcome.state).toBe('pending')
    await clock.advance(1)
    expect(outcome.value).toMatchObject({ token: undefined, granted: [0], doubtful: [1, 2] })
    expect(outcome.value!.failures).toEqual([
      { node: 'n1', cause: new NoAnswerError(100) },
      { node: 'n2', cause: new NoAnswerError(100) },
    ])
    expect([...suspects]).toEqual([1, 2])
  })

  test('never counts a vote twice, however often a node answers', async () => {
    const { clock, outcome } = electing([granted(5), refused(), refused()])
    await clock.advance(ALL_MS)
    expect(outcome.value!.token).toBeUndefined()
  })
})

describe('an election in order', () => {
  const inOrder = { inOrder: true }

  test('asks the first node alone, and the others when it has voted', async () => {
    const { clock, outcome, seen } = electing([granted(5, 20), granted(5, 10), granted(5, 10)], inOrder)
    await clock.advance(19)
    expect(seen.asked).toEqual([[0, 0]])
    await clock.advance(20)
    expect(seen.asked).toEqual([
      [0, 0],
      [1, 20],
      [2, 20],
    ])
    expect(outcome.value).toMatchObject({ token: 5 })
  })

  test('is lost as soon as the first node refuses, and nobody else is asked', async () => {
    const { clock, outcome, seen } = electing([refused(20), granted(5), granted(5)], inOrder)
    await clock.advance(20)
    expect(outcome.value).toMatchObject({ token: undefined })
    expect(outcome.value!.refusals).toHaveLength(1)
    expect(seen.asked).toEqual([[0, 0]])
  })

  test.each([
    ['fails', failed(10), 10],
    ['is silent', silent, TIMEOUT_MS],
  ])('goes on with the next when the first %s', async (_how, first, atMs) => {
    const { clock, outcome, seen } = electing([first, granted(5), granted(5)], inOrder)
    await clock.advance(ALL_MS)
    expect(seen.asked).toEqual([
      [0, 0],
      [1, atMs],
      [2, atMs + 1],
    ])
    expect(outcome.value).toMatchObject({ token: 5 })
  })

  test('asks those last whose last command failed', async () => {
    const { clock, seen } = electing([granted(5), granted(5), granted(5)], { inOrder: true, suspects: new Set([0]) })
    await clock.advance(0)
    expect(seen.asked).toEqual([[1, 0]])
  })

  test('does not count the late grant of a node it has given up', async () => {
    const { clock, outcome, seen } = electing([granted(5, 150), granted(5, 200), refused(200)], inOrder)
    await clock.advance(ALL_MS)
    const lost = outcome.value!
    expect(lost.token).toBeUndefined()
    expect(lost.doubtful).toContain(0)
    expect(seen.late).toContain(0)
  })

  test('withdraws from a node that granted and then said no: over several connections the no may be from before', () => {
    const nodes = ['n0', 'n1', 'n2'].map((label) => ({ label })) as RedisNode[]
    const election = new Election({
      nodes,
      deadlines: new Deadlines(new ManualClock(0)),
      timeoutMs: TIMEOUT_MS,
      inOrder: false,
      suspects: new Set(),
      acquire: () => undefined,
      confirm: () => undefined,
      late: () => undefined,
      lateRefusal: () => undefined,
      settled: () => undefined,
      isOver: () => false,
    })
    const tokens: (number | undefined)[] = []
    election.run((token) => tokens.push(token))
    for (const node of [0, 1, 2]) election.answered(node, { kind: 'granted', fence: node + 1 })
    for (const node of [2, 0]) election.answered(node, { kind: 'out' })
    expect(tokens).toEqual([undefined])
    expect(election.granted()).toEqual([1])
    expect(election.doubtful()).toEqual([0, 2])
  })
})
