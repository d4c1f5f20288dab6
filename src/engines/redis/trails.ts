/**
 * What of an owner is still under way on the nodes after the caller has its answer: the slow nodes of a won election,
 * extensions, repairs. Kept so that a release can be repeated on a node where one of them takes effect after it.
 */
export interface Trail {
  /** The lease was released: whatever takes effect after that must be undone. */
  over: boolean
  /** Nodes that have answered to the release, or failed to. */
  readonly released: Set<number>
  /** Nodes that granted after the release was sent, and have not answered to it yet. */
  readonly late: Set<number>
  underWay: number
  /** Nodes on which a lost key was put back. They don't count as proof until a quorum of others has proved the lease. */
  readonly repaired: Set<number>
  readonly repairing: Set<number>
}

const FRESH = { over: false, underWay: 0 }

export class Trails {
  readonly #trails = new Map<string, Trail>()

  get(owner: string): Trail | undefined {
    return this.#trails.get(owner)
  }

  /** One more thing is under way; `done` must follow. */
  begin(owner: string): Trail {
    let trail = this.#trails.get(owner)
    if (trail === undefined) {
      trail = { ...FRESH, released: new Set(), late: new Set(), repaired: new Set(), repairing: new Set() }
      this.#trails.set(owner, trail)
    }
    trail.underWay++
    return trail
  }

  done(owner: string, trail: Trail): void {
    trail.underWay--
    if (trail.underWay === 0 && (trail.over || trail.repaired.size === 0)) this.#trails.delete(owner)
  }

  end(owner: string): Trail | undefined {
    const trail = this.#trails.get(owner)
    if (trail === undefined) return undefined
    trail.over = true
    if (trail.underWay === 0) this.#trails.delete(owner)
    return trail
  }

  get size(): number {
    return this.#trails.size
  }
}
