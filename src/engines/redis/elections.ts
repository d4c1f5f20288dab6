import { elapsedMs, instant, type Clock } from '../../clock.ts'
import type { Deadlines } from '../../deadlines.ts'
import type { Grant, LeaseRef, LeaseRequest, Refusal } from '../../engine.ts'
import type { EngineError, NodeFailure } from '../../errors.ts'
import { withNextRound } from '../shared/next-round.ts'
import type { OpenRequests, QuorumCleanup } from './cleanup.ts'
import { Election, type ElectionEnd } from './election.ts'
import type { KeySet } from './keys.ts'
import type { RedisNode } from './node.ts'
import { grantOf, heldBy, refusalOf } from './refusal.ts'
import { asksInOrder } from './split-votes.ts'
import type { NodeGrant, NodeRefusal, Step } from './steps.ts'
import { quorumOf } from './votes.ts'
import type { Electorate } from './voters/electorate.ts'
import type { Identities } from './voters/same-server.ts'

type Resolve = (outcome: Grant | Refusal) => void
type Reject = (error: EngineError) => void

interface ElectionsPlan {
  readonly nodes: readonly RedisNode[]
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly open: OpenRequests
  readonly cleanup: QuorumCleanup
  readonly electorate: Electorate | undefined
  readonly identities: Identities | undefined
  timeoutMs(ttlMs: number): number
  /** Whether somebody wants to know each node's vote. */
  isObserved(): boolean
  readonly failure: (failures: readonly NodeFailure[], resources: readonly string[]) => EngineError
}

/** The elections of a quorum: what an acquire, a hand-over and a claim ask for, and what their ends mean. */
export class Elections {
  readonly #plan: ElectionsPlan
  readonly #quorum: number
  /** The highest number seen on any node, for the next proposal. */
  #highestFence = 0
  readonly #suspects = new Set<number>()

  constructor(plan: ElectionsPlan) {
    this.#plan = plan
    this.#quorum = quorumOf(plan.nodes.length)
  }

  /** Our wall clock in µs, or more than the highest number of any node: then all nodes come to the same number, even if their clocks differ. */
  proposal(): number {
    return Math.max(Math.round(this.#plan.clock.wallMs() * 1000), this.#highestFence + 1)
  }

  // Written with callbacks: every lease passes here.

  acquire(keys: KeySet, request: LeaseRequest, resolve: Resolve, reject: Reject): void {
    const { nodes, clock } = this.#plan
    const { resources, owner, ttlMs, shared } = request
    const began = instant(clock)
    const step = nodes[0]!.acquireStep(keys, owner, ttlMs, this.proposal())
    this.#elect(keys, owner, ttlMs, step, asksInOrder(request), {
      decided: (token, election) => {
        if (token !== undefined) return resolve(this.#grant(token, election))
        if (election.isUnheard) return reject(this.#plan.failure(election.failures, resources))
        resolve(withNextRound(refusalOf(election, nodes.length, shared), request, elapsedMs(clock, began)))
      },
    })
  }

  /** `isVote`: nodes that sit out do not take part. */
  handOver(keys: KeySet, lease: LeaseRef, next: LeaseRequest, isVote: boolean, resolve: Resolve, reject: Reject): void {
    const { nodes, open, cleanup, failure } = this.#plan
    const requests = open.end(lease.owner)
    const step = nodes[0]!.handOverStep(keys, lease, next, this.proposal(), isVote)
    const isSplit = (election: Election): boolean => !election.isRefused && election.voters() >= this.#quorum
    const undo = (index: number, election: Election): void => {
      // An adoption that is refused, or whose outcome is unknown, leaves the lease to its holder.
      if (!isVote || !election.isLost || isSplit(election)) cleanup.undo(index, keys, lease.owner)
    }
    this.#elect(keys, next.owner, next.ttlMs, step, false, {
      lateFailure: undo,
      undo: (index, election) => {
        if (!isVote || election.isRefused || isSplit(election)) return undefined
        return nodes[index]!.giveBack(keys, next.owner, lease, this.proposal())
      },
      decided: (token, election) => {
        // Where the hand-over may not have arrived, or all of it failed, the old owner's keys would stay for their ttl.
        for (const index of token === undefined ? nodes.keys() : election.doubtful()) undo(index, election)
        cleanup.ended(requests, keys, lease.owner)
        if (token !== undefined) resolve(this.#grant(token, election))
        else if (election.isRefused) resolve({ kind: 'refused', reason: 'held' })
        // A quorum gave the lease to the next owner, but not with one number, and it is withdrawn from all of them.
        else if (isSplit(election)) resolve({ kind: 'refused', reason: 'split' })
        else reject(failure(election.failures, lease.resources))
      },
    })
  }

  /**
   * By an owner to whom the lock is offered. Where it is lost, or a node grants late, `left` is called with nodes on which something may be
   * left. Rejects if too few nodes have answered to it.
   */
  claim(
    { resources, ttlMs }: LeaseRequest,
    keys: KeySet,
    owner: string,
    left: (index: number) => void,
  ): Promise<Grant | undefined> {
    return new Promise((resolve, reject) => {
      const { nodes, cleanup, failure } = this.#plan
      const step = nodes[0]!.claimStep(keys, owner, ttlMs, this.proposal())
      // Where the claim was refused, the owner is still in line.
      const refusal = (index: number): void => cleanup.undo(index, keys, owner)
      this.#elect(keys, owner, ttlMs, step, false, {
        left,
        refusal,
        decided: (token, election) => {
          if (token === undefined && election.isUnheard) return reject(failure(election.failures, resources))
          if (token !== undefined) for (const index of election.refusing()) refusal(index)
          resolve(token === undefined ? undefined : this.#grant(token, election))
        },
      })
    })
  }

  #grant(token: number, election: Election): Grant {
    return grantOf(token, election, this.#plan.isObserved())
  }

  #elect(
    keys: KeySet,
    owner: string,
    ttlMs: number,
    step: Step<NodeGrant | NodeRefusal>,
    inOrder: boolean,
    end: ElectionEnd,
  ): void {
    const { nodes, clock, deadlines, open, cleanup, electorate, identities } = this.#plan
    let quiet = false
    const began = instant(clock)
    const requests = open.begin(owner)
    const undo = (index: number): Promise<unknown> =>
      end.undo?.(index, election) ?? nodes[index]!.release(keys, owner, 0n, quiet)
    const election = new Election({
      nodes,
      deadlines,
      timeoutMs: this.#plan.timeoutMs(ttlMs),
      inOrder,
      suspects: this.#suspects,
      acquire: (index, to) => nodes[index]!.send(step, to, index),
      confirm: (index, to, token) => {
        const node = nodes[index]!
        node.send(node.confirmStep(keys, owner, token, ttlMs), to, index)
      },
      late: (index, failed) => {
        if (election.isLost && end.left !== undefined) end.left(index)
        else if (election.isLost) undo(index).catch(() => undefined)
        else if (requests.over) cleanup.lateGrant(requests, index, keys, owner)
        if (failed) end.lateFailure?.(index, election)
      },
      lateRefusal: (index) => {
        if (!election.isLost) end.refusal?.(index)
      },
      settled: () => open.done(owner, requests, ttlMs),
      repeated: identities?.whyNoVote,
      isOver: () => requests.over || elapsedMs(clock, began) >= ttlMs,
    })
    election.run((token) => {
      this.#highestFence = Math.max(this.#highestFence, election.highestFence)
      if (election.heard >= this.#quorum) electorate?.used()
      if (token !== undefined || end.left !== undefined) return end.decided(token, election)
      // Where a holder is certain, or too few nodes answer, our release of the other nodes wakes nobody. A waiter that it
      // woke, ourselves among them, would be granted the same nodes, release them, and wake the others, at the speed of the
      // network, for as long as that lasts.
      quiet = heldBy(election, this.#quorum) !== undefined || election.isUnheard
      void cleanup.withdraw(election, undo).then(() => end.decided(undefined, election))
    })
  }
}
