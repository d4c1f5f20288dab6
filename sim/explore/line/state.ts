import { left, mixed, right } from '../fingerprint.ts'
import type { State } from '../state.ts'

/** What is explored: a holder, waiters of which each has a place in line on every node, and processes that come by. */
export interface LineConfiguration {
  readonly nodes: number
  readonly waiters: number
  /** How many owners a waiter has: one more than the claims that it may lose. */
  readonly owners: number
  /** Processes that come by without standing in line. */
  readonly newcomers: number
  /** How many of these, the last ones, do not come by: the holder may hand the lock over to them. */
  readonly heirs: number
  /**
   * `within` a process: what is left of the old lock is released when the heir has won or lost. `ticket`: any of the heirs may adopt the
   * lease, and who has lost gives back what it has taken.
   */
  readonly handOver: 'within' | 'ticket'
  /** Which processes are readers: 0 is the holder, then come the waiters, then the newcomers. */
  readonly readers: readonly number[]
  /** Nobody holds the lock at the beginning. */
  readonly free?: boolean
  /** Whether locks expire only when the validity of their owners is over. With `any`, exclusion is not promised. */
  readonly clocks?: 'good' | 'any'
  /** Whether the waiters are in line before the holder releases. */
  readonly inLine: boolean
  /** How often each of these may happen. */
  readonly duplicates: number
  readonly expiries: number
  readonly crashes: number
  readonly lates: number
  readonly giveUps: number
  /** Processes that end while they hold the lock. */
  readonly deaths: number
  /** How many states have their end looked at: one of this many. */
  readonly calmEvery: number
  /** A client that looks right and is not. */
  readonly wrong?:
    | 'offers are votes'
    | 'release and enqueue apart'
    | 'a lost claim is not withdrawn'
    | 'no second phase'
    | 'a hand-over leaves the old lock'
}

export interface LineShape {
  readonly nodes: number
  readonly processes: number
  readonly owners: number
  readonly column: number
  readonly words: number
}

/** Of the run: what may still happen, the highest number so far, and whether anything has happened that is not usual. */
export const RUN = {
  duplicates: 0,
  expiries: 1,
  crashes: 2,
  lates: 3,
  giveUps: 4,
  deaths: 5,
  top: 6,
  disturbed: 7,
} as const
const RUN_WORDS = 8

/**
 * Of a process. `past`: how many owners it has had before the one it has. Its token must be above `floor`, and, of a reader, not below
 * `least`: those are the highest tokens of writers, and of all, that had won before it began. `split`: it withdraws an adoption instead of giving back what it has taken.
 */
export const PROCESS = { phase: 0, past: 1, over: 2, token: 3, floor: 4, begunAtCrash: 5, least: 6, split: 7 } as const
const PROCESS_WORDS = 8

export const PHASE = { idle: 0, waiting: 1, claiming: 2, won: 3, done: 4 } as const

/** Of a node; behind it, a word of each owner and two of each process. */
export const NODE = { lock: 0, fence: 1, line: 2, readers: 3, status: 4 } as const
const NODE_WORDS = 5

/** Of an owner on a node: commands on their way, and whether the claim has been there. */
export const SENT = { claim: 1, claimed: 2, release: 4, back: 8 } as const

/** Of a process on a node: the numbers that were voted, and what it knows. */
export const LINK = { votes: 0, flags: 1 } as const
export const FLAG = { offered: 1, takesOver: 2 } as const

export function lineShape({ nodes, waiters, owners, newcomers }: LineConfiguration): LineShape {
  const processes = 1 + waiters + newcomers
  const all = processes * owners
  const column = NODE_WORDS + all + 2 * processes
  return { nodes, processes, owners: all, column, words: RUN_WORDS + processes * PROCESS_WORDS + nodes * column }
}

export function processAt(_shape: LineShape, process: number): number {
  return RUN_WORDS + process * PROCESS_WORDS
}

export function nodeAt(shape: LineShape, node: number): number {
  return RUN_WORDS + shape.processes * PROCESS_WORDS + node * shape.column
}

/** Owners are numbers from 1 on. */
export function sentAt(shape: LineShape, node: number, owner: number): number {
  return nodeAt(shape, node) + NODE_WORDS + owner - 1
}

export function linkAt(shape: LineShape, node: number, process: number): number {
  return nodeAt(shape, node) + NODE_WORDS + shape.owners + 2 * process
}

/** The same for states that differ only in the names of the nodes. */
export class LineFingerprint {
  a = 0
  b = 0
  readonly #shape: LineShape

  constructor(shape: LineShape) {
    this.#shape = shape
  }

  of(state: State): void {
    const shape = this.#shape
    const first = nodeAt(shape, 0)
    let a = 0x811c9dc5
    let b = 0x9e3779b9
    for (let word = 0; word < first; word++) {
      a = left(a, state[word]!)
      b = right(b, state[word]!)
    }
    let sumA = 0
    let sumB = 0
    for (let node = 0; node < shape.nodes; node++) {
      let columnA = 0x2545f491
      let columnB = 0x85157af5
      const from = first + node * shape.column
      for (let word = from; word < from + shape.column; word++) {
        columnA = left(columnA, state[word]!)
        columnB = right(columnB, state[word]!)
      }
      sumA = (sumA + mixed(columnA)) | 0
      sumB = (sumB + mixed(columnB)) | 0
    }
    this.a = mixed(left(a, sumA))
    this.b = mixed(right(b, sumB))
  }
}
