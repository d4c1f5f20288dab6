import type { Clock } from '../../clock.ts'
import type { RedisNode } from './node.ts'

/** How often nodes that sit out are looked at while they are not needed. */
const LET_IN_EVERY_MS = 5000

/** Nodes that came back after a restart, and sit out unless they have forgotten nothing. */
export class Returned {
  readonly #nodes: readonly RedisNode[]
  readonly #restart: 'auto' | 'strict' | 'trust'
  readonly #clock: Clock
  readonly #inTime: <T>(work: Promise<T>) => Promise<T>
  #lookedMs = -Infinity

  constructor(
    nodes: readonly RedisNode[],
    { restart, clock }: { readonly restart: 'auto' | 'strict' | 'trust'; readonly clock: Clock },
    inTime: <T>(work: Promise<T>) => Promise<T>,
  ) {
    this.#nodes = nodes
    this.#restart = restart
    this.#clock = clock
    this.#inTime = inTime
  }

  /**
   * Lets nodes vote that restarted but have forgotten nothing. True if there were any. A node that has been in use carries
   * a stamp; where all nodes can be asked and none has one, the deployment is new.
   */
  async letIn(sitting: readonly RedisNode[], maybeNew: boolean): Promise<boolean> {
    if (this.#restart !== 'auto') return false
    const isNew = maybeNew && !(await this.#anyInUse())
    const letIn = (isNew ? this.#nodes : sitting).map(async ({ admission }) => {
      if (!isNew) return this.#inTime(admission.loadDurable())
      await this.#inTime(admission.loadNew())
      return true
    })
    // Not being allowed to ask, or no answer, is no reason to let a node vote.
    return (await Promise.all(letIn.map((node) => node.catch(() => false)))).includes(true)
  }

  /** The others are enough for now; a node that need not sit out is let in for the next time, if it is not the time yet. */
  letInLater(sitting: readonly RedisNode[]): void {
    const now = this.#clock.monotonicMs()
    if (now - this.#lookedMs < LET_IN_EVERY_MS) return
    this.#lookedMs = now
    // Never rejects: whatever fails there is a node that is not let in.
    void this.letIn(sitting, false)
  }

  async #anyInUse(): Promise<boolean> {
    const inUse = this.#nodes.map(({ admission }) => this.#inTime(admission.inUse()))
    return (await Promise.all(inUse).catch(() => [true])).includes(true)
  }
}
