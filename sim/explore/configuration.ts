/** What is explored. */
export interface Configuration {
  readonly nodes: number
  /** Each client's proposal, 1 to 3. With the same for all of them, numbers are plain counters. */
  readonly proposals: readonly number[]
  /** Acquire and confirm requests that may arrive a second time. */
  readonly duplicates: number
  readonly crash: Crash
  /** `any`: keys expire whenever they like, as if clocks were mad. `good`: not before their owner's validity is over. */
  readonly clocks: 'any' | 'good'
  /** The scripts' short way, or the long one. */
  readonly quick: boolean
  /**
   * `exact`: what is on its way and what was heard, message by message; see exact.ts. `loose`: clients that may do all of that
   * and more, but of which less has to be known; see loose.ts. What holds for these holds for those.
   */
  readonly model: 'exact' | 'loose'
  /** Client 0 has the lease on all nodes and has handed it off: the others adopt it by the same ticket. */
  readonly ticket?: boolean
}

/**
 * Which node may crash once, and how it comes back. `kept`: with its memory. `sit-out`: without, and only when every lease
 * it may have forgotten is over, with numbers above the old ones (proposals). The rest is wrong: `at once`; `late` but
 * with its counters at nothing; `numbers`: at once, but with numbers repaired; `copy`: at once, as it was at the start.
 */
export type Crash = 'none' | 'kept' | 'sit-out' | 'at once' | 'late' | 'numbers' | 'copy'
