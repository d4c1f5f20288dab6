import { clientAt, linkAt, NODE, nodeAt, RUN_WORDS, type Shape, type State } from './state.ts'

/**
 * 64 bits of a state that are the same for states which differ in names only: nodes are alike, and so are clients with the
 * same proposal. What is of one node is hashed and then summed up, so that the order of the nodes does not matter; the
 * clients are put in an order by what they are, and where several orders are as good, the sum over all of them is taken.
 */
export class Fingerprint {
  /** Its halves, of the last state. */
  a = 0
  b = 0
  readonly #shape: Shape
  readonly #proposals: readonly number[]
  readonly #orders: readonly (readonly number[])[]
  /** Of each client alone, and of each client on each node: two words. */
  readonly #clients: Uint32Array
  readonly #links: Uint32Array

  constructor(shape: Shape, proposals: readonly number[]) {
    this.#shape = shape
    this.#proposals = proposals
    this.#orders = renamings(proposals)
    this.#clients = new Uint32Array(2 * shape.clients)
    this.#links = new Uint32Array(2 * shape.clients * shape.nodes)
  }

  of(state: State): void {
    for (let client = 0; client < this.#shape.clients; client++) this.#hashClient(state, client)
    this.a = 0
    this.b = 0
    for (let at = 0; at < this.#orders.length; at++) {
      if (this.#isInOrder(this.#orders[at]!)) this.#addOrder(state, this.#orders[at]!)
    }
  }

  #hashClient(state: State, client: number): void {
    const shape = this.#shape
    let a = 0x1b873593
    let b = 0x38b34ae5
    const at = clientAt(shape, client)
    for (let word = at; word < at + shape.client; word++) {
      a = left(a, state[word]!)
      b = right(b, state[word]!)
    }
    let sumA = 0
    let sumB = 0
    for (let node = 0; node < shape.nodes; node++) {
      const there = nodeAt(shape, node)
      const isOwner = state[there + NODE.owner] === client + 1 ? 1 : 0
      let linkA = left(0x52dce729, isOwner)
      let linkB = right(0x38495ab5, isOwner)
      const link = linkAt(shape, node, client)
      for (let word = link; word < link + shape.link; word++) {
        linkA = left(linkA, state[word]!)
        linkB = right(linkB, state[word]!)
      }
      linkA = mixed(linkA)
      linkB = mixed(linkB)
      const place = 2 * (client * shape.nodes + node)
      this.#links[place] = linkA
      this.#links[place + 1] = linkB
      const own = ownOf(state, there)
      sumA = (sumA + mixed(left(linkA, own))) | 0
      sumB = (sumB + mixed(right(linkB, own))) | 0
    }
    this.#clients[2 * client] = mixed(left(a, sumA))
    this.#clients[2 * client + 1] = mixed(right(b, sumB))
  }

  #isInOrder(order: readonly number[]): boolean {
    for (let to = 1; to < order.length; to++) {
      if (this.#proposals[to] !== this.#proposals[to - 1]) continue
      if (this.#clients[2 * order[to - 1]!]! > this.#clients[2 * order[to]!]!) return false
    }
    return true
  }

  #addOrder(state: State, order: readonly number[]): void {
    const shape = this.#shape
    let a = 0x811c9dc5
    let b = 0x9e3779b9
    for (let word = 0; word < RUN_WORDS; word++) {
      a = left(a, state[word]!)
      b = right(b, state[word]!)
    }
    for (let to = 0; to < shape.clients; to++) {
      const from = order[to]!
      a = left(a, this.#clients[2 * from]!)
      b = right(b, this.#clients[2 * from + 1]!)
    }
    let sumA = 0
    let sumB = 0
    for (let node = 0; node < shape.nodes; node++) {
      const own = ownOf(state, nodeAt(shape, node))
      let columnA = left(0x2545f491, own)
      let columnB = right(0x85157af5, own)
      for (let to = 0; to < shape.clients; to++) {
        const link = 2 * (order[to]! * shape.nodes + node)
        columnA = left(columnA, this.#links[link]!)
        columnB = right(columnB, this.#links[link + 1]!)
      }
      sumA = (sumA + mixed(columnA)) | 0
      sumB = (sumB + mixed(columnB)) | 0
    }
    this.a = (this.a + mixed(left(a, sumA))) | 0
    this.b = (this.b + mixed(right(b, sumB))) | 0
  }
}

/** What a node has, but whose it is: that is in the hash of a link. */
function ownOf(state: State, node: number): number {
  return state[node + NODE.fence]! | (state[node + NODE.status]! << 8)
}

/** Orders of the clients in which each stands where one with its own proposal stood. */
function renamings(proposals: readonly number[]): number[][] {
  const orders = (rest: readonly number[]): number[][] =>
    rest.length === 0
      ? [[]]
      : rest.flatMap((first) => orders(rest.filter((other) => other !== first)).map((order) => [first, ...order]))
  return orders([...proposals.keys()]).filter((order) => order.every((from, to) => proposals[from] === proposals[to]))
}

/** The two halves are hashed in different ways. */
export function left(hash: number, word: number): number {
  const one = Math.imul(word, 0xcc9e2d51)
  const next = hash ^ Math.imul((one << 15) | (one >>> 17), 0x1b873593)
  return (Math.imul((next << 13) | (next >>> 19), 5) + 0xe6546b64) | 0
}

export function right(hash: number, word: number): number {
  const one = Math.imul(word, 0x239b961b)
  const next = hash ^ Math.imul((one << 16) | (one >>> 16), 0xab0e9789)
  return (Math.imul((next << 19) | (next >>> 13), 5) + 0x561ccd1b) | 0
}

export function mixed(word: number): number {
  let hash = word ^ (word >>> 16)
  hash = Math.imul(hash, 0x85ebca6b)
  hash ^= hash >>> 13
  hash = Math.imul(hash, 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}
