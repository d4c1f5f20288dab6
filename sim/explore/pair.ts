import {
  CLIENT_WORDS,
  clientAt,
  linkAt,
  NODE,
  NODE_WORDS,
  nodeAt,
  RUN_WORDS,
  shapeOf,
  type Shape,
  type State,
} from './state.ts'

/**
 * A state of exact clients and one of loose ones as one state, in which states are still the same that differ in names only: whatever
 * is of a node or a client stays with it. The counters and the status of the nodes are the same in both.
 */
export class PairLayout {
  readonly shape: Shape
  readonly #exact: Shape
  readonly #loose: Shape

  constructor(exact: Shape, loose: Shape) {
    this.#exact = exact
    this.#loose = loose
    const client = exact.client - CLIENT_WORDS + loose.client + RUN_WORDS
    this.shape = shapeOf(exact.nodes, exact.clients, { client, link: exact.link + loose.link + 1 })
  }

  pack(exact: State, loose: State, pair: State): void {
    const { shape } = this
    copy(exact, 0, pair, 0, RUN_WORDS)
    for (let client = 0; client < shape.clients; client++) {
      const at = clientAt(shape, client)
      copy(exact, clientAt(this.#exact, client), pair, at, this.#exact.client)
      copy(loose, clientAt(this.#loose, client), pair, at + this.#exact.client, this.#loose.client)
      copy(loose, 0, pair, at + this.#exact.client + this.#loose.client, RUN_WORDS)
    }
    for (let node = 0; node < shape.nodes; node++) {
      copy(exact, nodeAt(this.#exact, node), pair, nodeAt(shape, node), NODE_WORDS)
      const owner = loose[nodeAt(this.#loose, node) + NODE.owner]!
      for (let client = 0; client < shape.clients; client++) {
        const link = linkAt(shape, node, client)
        copy(exact, linkAt(this.#exact, node, client), pair, link, this.#exact.link)
        copy(loose, linkAt(this.#loose, node, client), pair, link + this.#exact.link, this.#loose.link)
        pair[link + shape.link - 1] = owner === client + 1 ? 1 : 0
      }
    }
  }

  unpack(pair: State): { exact: State; loose: State } {
    const { shape } = this
    const exact = new Uint16Array(this.#exact.words)
    const loose = new Uint16Array(this.#loose.words)
    copy(pair, 0, exact, 0, RUN_WORDS)
    for (let client = 0; client < shape.clients; client++) {
      const at = clientAt(shape, client)
      copy(pair, at, exact, clientAt(this.#exact, client), this.#exact.client)
      copy(pair, at + this.#exact.client, loose, clientAt(this.#loose, client), this.#loose.client)
      copy(pair, at + this.#exact.client + this.#loose.client, loose, 0, RUN_WORDS)
    }
    for (let node = 0; node < shape.nodes; node++) {
      copy(pair, nodeAt(shape, node), exact, nodeAt(this.#exact, node), NODE_WORDS)
      copy(pair, nodeAt(shape, node), loose, nodeAt(this.#loose, node), NODE_WORDS)
      loose[nodeAt(this.#loose, node) + NODE.owner] = 0
      for (let client = 0; client < shape.clients; client++) {
        const link = linkAt(shape, node, client)
        copy(pair, link, exact, linkAt(this.#exact, node, client), this.#exact.link)
        copy(pair, link + this.#exact.link, loose, linkAt(this.#loose, node, client), this.#loose.link)
        if (pair[link + shape.link - 1] === 1) loose[nodeAt(this.#loose, node) + NODE.owner] = client + 1
      }
    }
    return { exact, loose }
  }
}

function copy(from: State, at: number, into: State, to: number, words: number): void {
  for (let word = 0; word < words; word++) into[to + word] = from[at + word]!
}
