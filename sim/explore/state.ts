/**
 * A state of the exploration in bytes: of the run, of each client, and of each node a column with what the node has and
 * what is between it and every client. Nodes are alike, so their columns can be sorted; so can clients with the same
 * proposal. States that differ only in that are the same.
 */
export interface Shape {
  readonly nodes: number
  readonly clients: number
  readonly bytes: number
  readonly column: number
}

/** Of the run. */
export const RUN = { duplicates: 0, crashes: 1, top: 2 } as const
const RUN_BYTES = 3

/** Of a client. */
export const CLIENT = { phase: 0, confirming: 1, rounds: 2, token: 3, floor: 4, over: 5, begunAtCrash: 6 } as const
const CLIENT_BYTES = 7

export const PHASE = { idle: 0, running: 1, won: 2, lost: 3 } as const

/** Of a node. */
export const NODE = { owner: 0, fence: 1, status: 2 } as const
const NODE_BYTES = 3

export const STATUS = { up: 0, sittingOut: 1 } as const

/**
 * Between a client and a node. Numbers are below 8, so that a set of them is a byte.
 * `delivered`: the acquire has arrived. `reply`: its answer is on its way (a number, or REFUSED). `heard`, `fence` and
 * `votes` are the client's ballot. `asked`: for the number that is being confirmed. Then sets of numbers: confirmations on
 * their way, arrived, and their answers yes and higher on their way; `no` is one flag.
 */
export const LINK = {
  delivered: 0,
  reply: 1,
  heard: 2,
  fence: 3,
  votes: 4,
  asked: 5,
  sent: 6,
  arrived: 7,
  yes: 8,
  higher: 9,
  no: 10,
} as const
const LINK_BYTES = 11

export const HEARD = { silent: 0, ours: 1, out: 2, failed: 3 } as const
export const REFUSED = 15

export function shapeOf(nodes: number, clients: number): Shape {
  const column = NODE_BYTES + clients * LINK_BYTES
  const bytes = RUN_BYTES + clients * CLIENT_BYTES + nodes * column
  // Whole words: states are hashed by these.
  return { nodes, clients, column, bytes: Math.ceil(bytes / 4) * 4 }
}

export function clientAt(client: number): number {
  return RUN_BYTES + client * CLIENT_BYTES
}

export function nodeAt(shape: Shape, node: number): number {
  return RUN_BYTES + shape.clients * CLIENT_BYTES + node * shape.column
}

export function linkAt(shape: Shape, node: number, client: number): number {
  return nodeAt(shape, node) + NODE_BYTES + client * LINK_BYTES
}

/** Sorts what is alike. `swaps`: orders of the clients that change nothing but names. */
export class Canonical {
  readonly #shape: Shape
  readonly #swaps: readonly (readonly number[])[]
  readonly #best: Uint8Array
  readonly #other: Uint8Array

  constructor(shape: Shape, swaps: readonly (readonly number[])[]) {
    this.#shape = shape
    this.#swaps = swaps
    this.#best = new Uint8Array(shape.bytes)
    this.#other = new Uint8Array(shape.bytes)
  }

  /** The same bytes for every state that differs in names only. Valid until the next call. */
  of(state: Uint8Array): Uint8Array {
    const best = this.#best
    best.set(state)
    this.#sortColumns(best)
    for (let at = 1; at < this.#swaps.length; at++) {
      const order = this.#swaps[at]!
      // The clients' own bytes come before the columns, so mostly they settle it.
      const first = this.#compareClients(state, order, best)
      if (first > 0) continue
      const other = this.#renamed(state, order)
      this.#sortColumns(other)
      if (compare(other, best, 0, 0, other.length) < 0) best.set(other)
    }
    return best
  }

  #compareClients(state: Uint8Array, order: readonly number[], best: Uint8Array): number {
    for (let to = 0; to < order.length; to++) {
      const difference = compare(state, best, clientAt(order[to]!), clientAt(to), CLIENT_BYTES)
      if (difference !== 0) return difference
    }
    return 0
  }

  #renamed(state: Uint8Array, order: readonly number[]): Uint8Array {
    const shape = this.#shape
    const other = this.#other
    other.set(state)
    for (let to = 0; to < order.length; to++) {
      const from = order[to]!
      if (from === to) continue
      copy(state, clientAt(from), other, clientAt(to), CLIENT_BYTES)
      for (let node = 0; node < shape.nodes; node++) {
        copy(state, linkAt(shape, node, from), other, linkAt(shape, node, to), LINK_BYTES)
      }
    }
    for (let node = 0; node < shape.nodes; node++) {
      const owner = state[nodeAt(shape, node) + NODE.owner]!
      other[nodeAt(shape, node) + NODE.owner] = owner === 0 ? 0 : order.indexOf(owner - 1) + 1
    }
    return other
  }

  #sortColumns(state: Uint8Array): void {
    const { nodes, column } = this.#shape
    const first = nodeAt(this.#shape, 0)
    // By insertion: there are few, and mostly they are in order.
    for (let i = 1; i < nodes; i++) {
      for (let j = i; j > 0; j--) {
        const a = first + (j - 1) * column
        const b = first + j * column
        if (compare(state, state, a, b, column) <= 0) break
        for (let at = 0; at < column; at++) {
          const byte = state[a + at]!
          state[a + at] = state[b + at]!
          state[b + at] = byte
        }
      }
    }
  }
}

function copy(from: Uint8Array, fromAt: number, to: Uint8Array, toAt: number, length: number): void {
  for (let at = 0; at < length; at++) to[toAt + at] = from[fromAt + at]!
}

function compare(a: Uint8Array, b: Uint8Array, fromA: number, fromB: number, length: number): number {
  for (let at = 0; at < length; at++) {
    const difference = a[fromA + at]! - b[fromB + at]!
    if (difference !== 0) return difference
  }
  return 0
}

/**
 * The states that were seen, by 64 bits of hash each: two of n states would be taken for the same one with a
 * probability of n² / 2^64, which is told with the result.
 */
export class Seen {
  /** Two words a place; the second is never 0 where there is a state. */
  #table: Uint32Array
  #mask: number
  #state: Uint8Array | undefined
  #words: Uint32Array = new Uint32Array(0)
  count = 0

  constructor(bits = 20) {
    this.#table = new Uint32Array(2 * 2 ** bits)
    this.#mask = 2 ** bits - 1
  }

  /** False if it was there. Takes whole words. */
  add(state: Uint8Array): boolean {
    if (this.count * 3 > (this.#mask + 1) * 2) this.#grow()
    const words = this.#wordsOf(state)
    let a = 0x811c9dc5
    let b = 0x9e3779b9
    for (let at = 0; at < words.length; at++) {
      const word = words[at]!
      const one = Math.imul(word, 0xcc9e2d51)
      a ^= Math.imul((one << 15) | (one >>> 17), 0x1b873593)
      a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe6546b64) | 0
      const other = Math.imul(word, 0x239b961b)
      b ^= Math.imul((other << 17) | (other >>> 15), 0x38b34ae5)
      b = (Math.imul((b << 11) | (b >>> 21), 5) + 0x561ccd1b) | 0
    }
    // The two are mixed, so that each bit of one depends on all of the other.
    a = mixed(a ^ (b >>> 3))
    b = mixed((b + a) | 0)
    const isNew = this.#put(a, (b | 1) >>> 0)
    if (isNew) this.count++
    return isNew
  }

  /** The same buffer comes again and again. */
  #wordsOf(state: Uint8Array): Uint32Array {
    if (state !== this.#state) {
      this.#state = state
      this.#words = new Uint32Array(state.buffer, state.byteOffset, state.length / 4)
    }
    return this.#words
  }

  /** One bit of the hash is spent on telling full places from empty ones. */
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

function mixed(word: number): number {
  let hash = word ^ (word >>> 16)
  hash = Math.imul(hash, 0x85ebca6b)
  hash ^= hash >>> 13
  hash = Math.imul(hash, 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

/** States one behind the other in one piece of memory, because there are millions. */
export class StateList {
  readonly #bytes: number
  #memory: Uint8Array
  count = 0

  constructor(bytes: number) {
    this.#bytes = bytes
    this.#memory = new Uint8Array(1024 * bytes)
  }

  push(state: Uint8Array): void {
    const from = this.count++ * this.#bytes
    if (from + this.#bytes > this.#memory.length) {
      const more = new Uint8Array(this.#memory.length * 2)
      more.set(this.#memory)
      this.#memory = more
    }
    this.#memory.set(state, from)
  }

  /** Copies a state out. */
  read(at: number, into: Uint8Array): void {
    copy(this.#memory, at * this.#bytes, into, 0, this.#bytes)
  }

  pop(into: Uint8Array): void {
    this.read(--this.count, into)
  }
}
