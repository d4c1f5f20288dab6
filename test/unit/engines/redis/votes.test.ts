import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  count,
  decide,
  noBallots,
  quorumOf,
  type Ballots,
  type Decision,
  type NodeAnswer,
} from '../../../../src/engines/redis/votes.ts'

const size = fc.integer({ min: 1, max: 9 })
const fence = fc.integer({ min: 1, max: 4 })
const firstAnswer = fc.oneof(
  { weight: 3, arbitrary: fence.map((fence): NodeAnswer => ({ kind: 'granted', fence })) },
  fc.constant<NodeAnswer>({ kind: 'out' }),
)
const anyAnswer = fc.oneof(
  firstAnswer,
  fence.map((token): NodeAnswer => ({ kind: 'confirmed', token })),
  fence.map((fence): NodeAnswer => ({ kind: 'higher', fence })),
)

/** One answer a node, in any order. */
const election = size.chain((size) =>
  fc.record({
    size: fc.constant(size),
    answers: fc.array(firstAnswer, { minLength: size, maxLength: size }),
    order: fc.shuffledSubarray([...Array(size).keys()], { minLength: size, maxLength: size }),
  }),
)

/** Any answers of any nodes, also several of one. */
const history = size.chain((size) =>
  fc.record({
    size: fc.constant(size),
    heard: fc.array(fc.record({ node: fc.nat(size - 1), answer: anyAnswer }), { maxLength: 3 * size }),
  }),
)

function tally(size: number, heard: readonly { node: number; answer: NodeAnswer }[]): Ballots {
  return heard.reduce((ballots, { node, answer }) => count(ballots, node, answer), noBallots(size))
}

/** The nodes that ever voted for a token, counted by the rule itself and not by the code under test. */
function voters(heard: readonly { node: number; answer: NodeAnswer }[], token: number): Set<number> {
  const voted = heard.filter(
    ({ answer }) =>
      (answer.kind === 'granted' && answer.fence === token) || (answer.kind === 'confirmed' && answer.token === token),
  )
  return new Set(voted.map(({ node }) => node))
}

describe('a quorum', () => {
  test('is more than half: any two have a node in common, and it is the smallest such', () => {
    for (let size = 1; size <= 100; size++) {
      expect(2 * quorumOf(size)).toBeGreaterThan(size)
      expect(2 * (quorumOf(size) - 1)).toBeLessThanOrEqual(size)
    }
    expect([1, 2, 3, 4, 5, 6, 7].map(quorumOf)).toEqual([1, 2, 2, 3, 3, 4, 4])
  })
})

describe('a decision', () => {
  test('rests on a quorum of votes for one and the same token', () => {
    fc.assert(
      fc.property(history, ({ size, heard }) => {
        const decision = decide(tally(size, heard))
        fc.pre(decision.kind === 'won')
        expect(voters(heard, decision.token).size).toBeGreaterThanOrEqual(quorumOf(size))
      }),
      { numRuns: 500 },
    )
  })

  test('is a win as soon as a quorum has granted the same number, and never before', () => {
    fc.assert(
      fc.property(election, ({ size, answers, order }) => {
        const heard: { node: number; answer: NodeAnswer }[] = []
        for (const node of order) {
          heard.push({ node, answer: answers[node]! })
          const most = Math.max(...[1, 2, 3, 4].map((token) => voters(heard, token).size))
          expect(decide(tally(size, heard)).kind === 'won').toBe(most >= quorumOf(size))
        }
      }),
    )
  })

  test('is a loss as soon as no quorum can be had any more, and never before', () => {
    fc.assert(
      fc.property(election, ({ size, answers, order }) => {
        const heard: { node: number; answer: NodeAnswer }[] = []
        for (const [index, node] of order.entries()) {
          heard.push({ node, answer: answers[node]! })
          const silent = order.slice(index + 1)
          const best = [...heard, ...silent.map((node) => ({ node, answer: { kind: 'granted', fence: 9 } as const }))]
          const reachable = decide(tally(size, best)).kind !== 'lost'
          const grants = heard.filter(({ answer }) => answer.kind === 'granted').length
          expect(decide(tally(size, heard)).kind === 'lost').toBe(!reachable)
          expect(reachable).toBe(grants + silent.length >= quorumOf(size))
        }
      }),
    )
  })

  test('once made stands, whatever the slow nodes say', () => {
    fc.assert(
      fc.property(election, ({ size, answers, order }) => {
        let ballots = noBallots(size)
        let made: Decision | undefined
        for (const node of order) {
          ballots = count(ballots, node, answers[node]!)
          const decision = decide(ballots)
          // An earlier win or loss is what the later ones must be.
          expect(made ?? decision).toEqual(decision)
          made = decision.kind === 'won' || decision.kind === 'lost' ? decision : undefined
        }
      }),
    )
  })

  test('over all answers does not depend on their order', () => {
    fc.assert(
      fc.property(election, ({ size, answers, order }) => {
        const inOrder = tally(
          size,
          order.map((node) => ({ node, answer: answers[node]! })),
        )
        const sorted = tally(
          size,
          answers.map((answer, node) => ({ node, answer })),
        )
        expect(decide(inOrder)).toEqual(decide(sorted))
      }),
    )
  })

  test('is not open when every node has answered', () => {
    fc.assert(
      fc.property(election, ({ size, answers }) => {
        expect(
          decide(
            tally(
              size,
              answers.map((answer, node) => ({ node, answer })),
            ),
          ).kind,
        ).not.toBe('open')
      }),
    )
  })

  test('never names two tokens for the same ballots', () => {
    // One vote a node: then at most one token can have a quorum, and it is the one named.
    fc.assert(
      fc.property(election, ({ size, answers }) => {
        const heard = answers.map((answer, node) => ({ node, answer }))
        const winners = [1, 2, 3, 4].filter((token) => voters(heard, token).size >= quorumOf(size))
        const decision = decide(tally(size, heard))
        expect(decision.kind === 'won' ? [decision.token] : []).toEqual(winners)
      }),
    )
  })

  test('asks to confirm the lowest number that a quorum can still accept, of those who can', () => {
    fc.assert(
      fc.property(election, ({ size, answers, order }) => {
        const ballots = tally(
          size,
          order.slice(0, -1).map((node) => ({ node, answer: answers[node]! })),
        )
        const decision = decide(ballots)
        fc.pre(decision.kind === 'confirm')
        const granted = ballots.flatMap(({ state, fence }) => (state === 'ours' ? [fence] : []))
        const acceptable = (token: number): number => granted.filter((fence) => fence <= token).length
        expect(acceptable(decision.token)).toBeGreaterThanOrEqual(quorumOf(size))
        expect(acceptable(decision.token - 1)).toBeLessThan(quorumOf(size))
        for (const node of decision.nodes) {
          expect(ballots[node]!.state).not.toBe('out')
          expect(ballots[node]!.fence).toBeLessThanOrEqual(decision.token)
        }
        // If all of them say yes, it is won.
        const confirmed = decision.nodes.map((node) => ({
          node,
          answer: { kind: 'confirmed', token: decision.token } as const,
        }))
        const after = confirmed.reduce((ballots, { node, answer }) => count(ballots, node, answer), ballots)
        expect(decide(after)).toEqual({ kind: 'won', token: decision.token })
      }),
      { numRuns: 300 },
    )
  })
})

describe('an answer "higher"', () => {
  test('is not a vote', () => {
    const ballots = tally(3, [
      { node: 0, answer: { kind: 'granted', fence: 5 } },
      { node: 1, answer: { kind: 'granted', fence: 3 } },
      { node: 1, answer: { kind: 'higher', fence: 5 } },
    ])
    expect(decide(ballots)).toEqual({ kind: 'confirm', token: 5, nodes: [1, 2] })
  })
})

/** Nodes that do what the scripts do, and clients that decide with the code under test, one atomic step at a time. */
class Cluster {
  readonly nodes: { owner: number; fence: number }[]
  readonly clients: Client[] = []
  now = 0

  constructor(size: number) {
    this.nodes = Array.from({ length: size }, () => ({ owner: 0, fence: 0 }))
  }

  acquire(node: number, owner: number, proposal: number): NodeAnswer {
    const state = this.nodes[node]!
    if (state.owner === owner) return { kind: 'granted', fence: state.fence }
    if (state.owner !== 0) return { kind: 'out' }
    Object.assign(state, { owner, fence: Math.max(state.fence + 1, proposal) })
    return { kind: 'granted', fence: state.fence }
  }

  confirm(node: number, owner: number, token: number): NodeAnswer {
    const state = this.nodes[node]!
    if (state.owner !== owner) return { kind: 'out' }
    if (state.fence > token) return { kind: 'higher', fence: state.fence }
    state.fence = token
    return { kind: 'confirmed', token }
  }
}

interface Client {
  readonly owner: number
  readonly proposal: number
  readonly began: number
  ballots: Ballots
  /** Requests that have not reached their node yet; they may arrive in any order, late, or twice. */
  readonly sent: { node: number; token: number | undefined }[]
  readonly asked: Set<string>
  won: { token: number; at: number } | undefined
  done: boolean
}

const step = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant('start' as const), proposal: fc.nat(6) }) },
  {
    weight: 12,
    arbitrary: fc.record({
      do: fc.constant('deliver' as const),
      client: fc.nat(50),
      request: fc.nat(50),
      fate: fc.constantFrom('answered', 'answered', 'answered', 'answer lost', 'sent again'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('expire' as const), node: fc.nat(8) }) },
)

describe('elections on nodes that lose, delay, repeat and forget', () => {
  test('never give one token to two owners, and a later one is higher', () => {
    fc.assert(
      fc.property(fc.constantFrom(1, 3, 4, 5), fc.array(step, { minLength: 20, maxLength: 150 }), (size, steps) => {
        const cluster = new Cluster(size)
        for (const step of steps) run(cluster, step)
        const winners = cluster.clients.flatMap(({ won, began }) => (won === undefined ? [] : [{ ...won, began }]))
        expect(new Set(winners.map(({ token }) => token)).size).toBe(winners.length)
        for (const earlier of winners) {
          for (const later of winners.filter(({ began }) => began > earlier.at)) {
            expect(later.token).toBeGreaterThan(earlier.token)
          }
        }
      }),
      { numRuns: 400 },
    )
  })
})

function run(cluster: Cluster, step: ReturnType<typeof stepOf>): void {
  cluster.now++
  if (step.do === 'start') {
    const owner = cluster.clients.length + 1
    const sent = [...cluster.nodes.keys()].map((node) => ({ node, token: undefined }))
    const ballots = noBallots(cluster.nodes.length)
    const { proposal } = step
    cluster.clients.push({
      owner,
      proposal,
      began: cluster.now,
      ballots,
      sent,
      asked: new Set(),
      won: undefined,
      done: false,
    })
  } else if (step.do === 'expire') {
    cluster.nodes[step.node % cluster.nodes.length]!.owner = 0
  } else {
    deliver(cluster, step)
  }
}

function deliver(cluster: Cluster, step: Extract<ReturnType<typeof stepOf>, { do: 'deliver' }>): void {
  const client = cluster.clients[step.client % Math.max(1, cluster.clients.length)]
  const request = client?.sent[step.request % Math.max(1, client.sent.length)]
  if (client === undefined || request === undefined) return
  const { node, token } = request
  if (step.fate !== 'sent again') client.sent.splice(client.sent.indexOf(request), 1)
  const answer =
    token === undefined
      ? cluster.acquire(node, client.owner, client.proposal)
      : cluster.confirm(node, client.owner, token)
  if (client.done) return
  client.ballots = count(client.ballots, node, step.fate === 'answer lost' ? { kind: 'out' } : answer)
  const decision = decide(client.ballots)
  if (decision.kind === 'won') client.won = { token: decision.token, at: cluster.now }
  client.done = decision.kind === 'won' || decision.kind === 'lost'
  if (decision.kind !== 'confirm') return
  for (const node of decision.nodes) {
    if (client.asked.has(`${node}/${decision.token}`)) continue
    client.asked.add(`${node}/${decision.token}`)
    client.sent.push({ node, token: decision.token })
  }
}

function stepOf(value: typeof step extends fc.Arbitrary<infer T> ? T : never): typeof value {
  return value
}
