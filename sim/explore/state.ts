/**
 * A state of the exploration in words of 16 bits: of the run, of each client, and of each node a column with what the node
 * has and what is between it and every client. How much there is of a client, and between it and a node, is the model's.
 */
export type State = Uint16Array

export interface Shape {
  readonly nodes: number
  readonly clients: number
  /** Words of a client, of a link, of a column and of all. */
  readonly client: number
  readonly link: number
  readonly column: number
  readonly words: number
}

/** Numbers of grants are at most this, so that a set of them is a word. */
export const MOST_NUMBER = 15

/** The numbers of a set, in order. Remembered: the same few sets come again and again. */
export function numbersIn(set: number): readonly number[] {
  return (NUMBERS[set] ??= Array.from({ length: MOST_NUMBER }, (_, at) => at + 1).filter(
    (number) => (set >> number) & 1,
  ))
}

const NUMBERS: (readonly number[])[] = []

/** Of the run: requests that may still arrive twice, crashes that may still happen, and the highest number so far. */
export const RUN = { duplicates: 0, crashes: 1, top: 2 } as const
export const RUN_WORDS = 3

/** Of a client in every model; the model's own words come behind these. */
export const CLIENT = { phase: 0, token: 1, floor: 2, over: 3, begunAtCrash: 4 } as const
export const CLIENT_WORDS = 5

export const PHASE = { idle: 0, running: 1, won: 2, lost: 3 } as const

/** Of a node. */
export const NODE = { owner: 0, fence: 1, status: 2 } as const
export const NODE_WORDS = 3

export const STATUS = { up: 0, sittingOut: 1 } as const

export function shapeOf(nodes: number, clients: number, own: { client: number; link: number }): Shape {
  const client = CLIENT_WORDS + own.client
  const column = NODE_WORDS + clients * own.link
  return { nodes, clients, client, link: own.link, column, words: RUN_WORDS + clients * client + nodes * column }
}

export function clientAt(shape: Shape, client: number): number {
  return RUN_WORDS + client * shape.client
}

export function nodeAt(shape: Shape, node: number): number {
  return RUN_WORDS + shape.clients * shape.client + node * shape.column
}

export function linkAt(shape: Shape, node: number, client: number): number {
  return nodeAt(shape, node) + NODE_WORDS + client * shape.link
}

/**
 * The states that were seen, by 64 bits of fingerprint each: two of n states would be taken for the same one with a
 * probability of n² / 2^64, which is told with the result.
 */
export class Seen {
  /** Two words a place; the second is never 0 where there is a state. */
  #table: Uint32Array
  #mask: number
  count = 0

  constructor(bits = 20) {
    this.#table = new Uint32Array(2 * 2 ** bits)
    this.#mask = 2 ** bits - 1
  }

  /** False if it was there. Takes the two halves of its fingerprint. */
  add(a: number, b: number): boolean {
    if (this.count * 3 > (this.#mask + 1) * 2) this.#grow()
    const isNew = this.#put(a >>> 0, (b | 1) >>> 0)
    if (isNew) this.count++
    return isNew
  }

  /** One bit of the fingerprint is spent on telling full places from empty ones. */
  get doubt(): number {
    return this.count ** 2 / 2 ** 64
  }

  #put(a: number, b: number): boolean {
    const table = this.#table
    for (let place = (a ^ (b >>> 1)) & this.#mask; ; place = (place + 1) & this.#mask) {
      const there = table[2 * place + 1]!
      if (there === 0) {
        table[2 * place] = a
        table[2 * place + 1] = b
        return true
      }
      if (there === b && table[2 * place] === a) return false
    }
  }

  #grow(): void {
    const old = this.#table
    this.#table = new Uint32Array(old.length * 2)
    this.#mask = this.#mask * 2 + 1
    for (let at = 0; at < old.length; at += 2) if (old[at + 1] !== 0) this.#put(old[at]!, old[at + 1]!)
  }
}

/** States one behind the other in one piece of memory, because there are millions. */
export class StateList {
  readonly #words: number
  #memory: State
  count = 0

  constructor(words: number) {
    this.#words = words
    this.#memory = new Uint16Array(1024 * words)
  }

  push(state: State): void {
    const from = this.count++ * this.#words
    if (from + this.#words > this.#memory.length) {
      const more = new Uint16Array(this.#memory.length * 2)
      more.set(this.#memory)
      this.#memory = more
    }
    this.#memory.set(state, from)
  }

  /** Copies a state out. */
  read(at: number, into: State): void {
    const from = at * this.#words
    for (let word = 0; word < this.#words; word++) into[word] = this.#memory[from + word]!
  }

  pop(into: State): void {
    this.read(--this.count, into)
  }
}
