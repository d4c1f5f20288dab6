/**
 * The protocol's decision, as pure functions over what the nodes have answered, so that a client and an exhaustive
 * exploration run the same code.
 *
 * A node's vote for token t is an atomic step on it after which L is ours *and F = t*: a grant of t, or a confirmed t.
 * Nothing else is a vote. The lease is ours with t when a quorum has voted for the same t.
 */
export type NodeAnswer =
  | { readonly kind: 'granted'; readonly fence: number }
  | { readonly kind: 'confirmed'; readonly token: number }
  /** Still ours, but F is above the number that was to be confirmed: not a vote. */
  | { readonly kind: 'higher'; readonly fence: number }
  /** Refused, gone, or failed: it will not vote for us any more. */
  | { readonly kind: 'out' }

export type Decision =
  | { readonly kind: 'won'; readonly token: number }
  | { readonly kind: 'lost' }
  | { readonly kind: 'open' }
  /** Enough nodes are ours, but their numbers differ: ask these nodes to confirm this one. */
  | { readonly kind: 'confirm'; readonly token: number; readonly nodes: readonly number[] }

interface NodeVotes {
  readonly state: 'silent' | 'ours' | 'out'
  readonly fence: number
  readonly votes: readonly number[]
}

export type Ballots = readonly NodeVotes[]

const SILENT: NodeVotes = { state: 'silent', fence: 0, votes: [] }

export function quorumOf(size: number): number {
  return Math.floor(size / 2) + 1
}

export function noBallots(size: number): Ballots {
  return Array.from({ length: size }, () => SILENT)
}

export function count(ballots: Ballots, node: number, answer: NodeAnswer): Ballots {
  return ballots.map((ballot, index) => (index === node ? counted(ballot, answer) : ballot))
}

function counted(ballot: NodeVotes, answer: NodeAnswer): NodeVotes {
  switch (answer.kind) {
    case 'granted':
      return { state: 'ours', fence: answer.fence, votes: [...ballot.votes, answer.fence] }
    case 'confirmed':
      return { state: 'ours', fence: answer.token, votes: [...ballot.votes, answer.token] }
    case 'higher':
      return { ...ballot, state: 'ours', fence: answer.fence }
    case 'out':
      // Votes given stay given: each was an atomic step, whatever happened on that node afterwards.
      return { ...ballot, state: 'out' }
  }
}

/** `atLeast` is the number that nodes were last asked to confirm: it never falls, or rounds of asking would chase it. */
export function decide(ballots: Ballots, atLeast = 0): Decision {
  const quorum = quorumOf(ballots.length)
  const token = voted(ballots, quorum)
  if (token !== undefined) return { kind: 'won', token }
  const ours = ballots.filter(({ state }) => state === 'ours')
  const silent = ballots.filter(({ state }) => state === 'silent').length
  if (ours.length + silent < quorum) return { kind: 'lost' }
  if (ours.length < quorum) return { kind: 'open' }
  // The lowest number that a quorum can still accept.
  const lowest = Math.max(atLeast, ours.map(({ fence }) => fence).sort((a, b) => a - b)[quorum - 1]!)
  const nodes = [...ballots.keys()].filter((index) => {
    const { state, fence, votes } = ballots[index]!
    return state === 'silent' || (state === 'ours' && fence <= lowest && !votes.includes(lowest))
  })
  return { kind: 'confirm', token: lowest, nodes }
}

function voted(ballots: Ballots, quorum: number): number | undefined {
  const counts = new Map<number, number>()
  for (const { votes } of ballots) {
    for (const token of new Set(votes)) {
      const count = (counts.get(token) ?? 0) + 1
      if (count >= quorum) return token
      counts.set(token, count)
    }
  }
  return undefined
}
