import { ByName } from '../../by-name.ts'
import type { Deadlines } from '../../deadlines.ts'
import type { LeaseRef } from '../../engine.ts'
import { ask } from './ask.ts'
import type { Election } from './election.ts'
import type { KeySet } from './keys.ts'
import type { RedisNode } from './node.ts'

/** Undoes what nodes have, or may have, granted to an owner whose attempt has failed or whose lease is over. */
export class QuorumCleanup {
  readonly #nodes: readonly RedisNode[]
  readonly #deadlines: Deadlines
  readonly #timeoutMs: number

  constructor(nodes: readonly RedisNode[], deadlines: Deadlines, timeoutMs: number) {
    this.#nodes = nodes
    this.#deadlines = deadlines
    this.#timeoutMs = timeoutMs
  }

  /** Best effort, in the background: the key's ttl does the rest. */
  undo(index: number, keys: KeySet, owner: string, quiet = false): void {
    this.#nodes[index]!.release(keys, owner, 0n, quiet).catch(() => undefined)
  }

  /**
   * After a failed attempt: releases wherever it was or may have been granted, never under the caller's abort signal.
   * A node that refused did nothing and is left alone. Waits for the nodes that granted, so that the next attempt does
   * not meet its own leftovers.
   */
  async withdraw(election: Election, undo: (index: number) => Promise<unknown>): Promise<void> {
    for (const index of election.doubtful()) undo(index).catch(() => undefined)
    const granted = election.granted()
    if (granted.length === 0) return
    await ask(
      granted.map((index) => this.#nodes[index]!),
      {
        deadlines: this.#deadlines,
        timeoutMs: this.#timeoutMs,
        send: (_node, at) => undo(granted[at]!),
        heard: () => false,
      },
    )
  }

  /**
   * A node has granted after the release was sent. Mostly the release reaches the node behind that grant; only the answer to
   * the release tells. If that answer is here already, the grant may have been sent after it, also where the release found
   * the key: a node without our script is sent the acquire again once it has it, and a repair may have put the key there.
   */
  lateGrant(requests: OwnerRequests, index: number, keys: KeySet, owner: string): void {
    if (requests.released.has(index)) this.#undoLate(requests, index, keys, owner)
    else requests.late.add(index)
  }

  /** A node has answered to the release, or failed to. */
  released(requests: OwnerRequests | undefined, index: number, ours: boolean, keys: KeySet, owner: string): void {
    requests?.released.add(index)
    if (!ours && requests?.late.delete(index) === true) this.#undoLate(requests, index, keys, owner)
  }

  /** The lease is over without a release: what a slow node may still grant to its owner is undone, or ends with the rest. */
  ended(requests: OwnerRequests | undefined, keys: KeySet, owner: string): void {
    for (const index of this.#nodes.keys()) this.released(requests, index, false, keys, owner)
  }

  /** A lease that was left rests on that node, too: its key stays there, but not longer than on the others. */
  #undoLate({ left }: OwnerRequests, index: number, keys: KeySet, owner: string): void {
    if (left === undefined) this.undo(index, keys, owner)
    else this.#nodes[index]!.extend([left]).catch(() => undefined)
  }
}

/**
 * The requests of one owner that are still under way after the caller has its answer: those to the slow nodes of a won
 * election, extensions, repairs. Kept so that a release can be repeated on a node where one of them takes effect after it.
 * Nearly every lease has them and needs none of their sets, so these are made at their first use.
 */
export class OwnerRequests {
  /** The lease was released or left: a request that takes effect after that must be undone. */
  over = false
  /** As it was left. */
  left: LeaseRef | undefined
  underWay = 0
  /** How many requests were ever under way. */
  begun = 0
  #released: Set<number> | undefined
  #late: Set<number> | undefined
  #repaired: Set<number> | undefined
  #repairing: Set<number> | undefined

  /** Nodes that have answered to the release, or failed to. */
  get released(): Set<number> {
    return (this.#released ??= new Set())
  }

  /** Nodes that granted after the release was sent, and have not answered to it yet. */
  get late(): Set<number> {
    return (this.#late ??= new Set())
  }

  /** Nodes on which a lost key was put back. They do not count as proof until a quorum of others has proved the lease. */
  get repaired(): Set<number> {
    return (this.#repaired ??= new Set())
  }

  get repairing(): Set<number> {
    return (this.#repairing ??= new Set())
  }

  get hasRepaired(): boolean {
    return this.#repaired !== undefined && this.#repaired.size > 0
  }
}

/** The requests under way, by owner. */
export class OpenRequests {
  readonly #open = new ByName<OwnerRequests>()
  readonly #deadlines: Deadlines

  constructor(deadlines: Deadlines) {
    this.#deadlines = deadlines
  }

  get(owner: string): OwnerRequests | undefined {
    return this.#open.get(owner)
  }

  /** One more request is under way; `done` must follow. */
  begin(owner: string): OwnerRequests {
    let requests = this.#open.get(owner)
    if (requests === undefined) {
      requests = new OwnerRequests()
      this.#open.set(owner, requests)
    }
    requests.underWay++
    requests.begun++
    return requests
  }

  /** `ttlMs`: of the lease. Repaired nodes are remembered for as long as the lease may still be extended. */
  done(owner: string, requests: OwnerRequests, ttlMs: number): void {
    if (--requests.underWay > 0) return
    if (requests.over || !requests.hasRepaired) this.#open.delete(owner)
    else this.#forgetAfter(owner, requests, ttlMs)
  }

  /** A lease that had no request for its whole ttl is over, also if nobody released it. */
  #forgetAfter(owner: string, requests: OwnerRequests, ttlMs: number): void {
    const { begun } = requests
    this.#deadlines.start(ttlMs, () => {
      if (requests.begun === begun && this.#open.get(owner) === requests) this.#open.delete(owner)
    })
  }

  end(owner: string): OwnerRequests | undefined {
    const requests = this.#open.get(owner)
    if (requests === undefined) return undefined
    requests.over = true
    // Leaving it has failed: nothing of it is to stay.
    requests.left = undefined
    if (requests.underWay === 0) this.#open.delete(owner)
    return requests
  }

  get size(): number {
    return this.#open.size
  }
}
