import { Steps } from './steps.ts'
import { Protocol, type Visit } from './protocol.ts'
import { Canonical, Seen, shapeOf, StateList } from './state.ts'

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
   * Leaves out what adds no behaviour. A client that gives up, by refusals or because its time is up, does no more than one
   * that goes on and hears nothing: what it has sent may still arrive in both, and its keys may go in both. A node that
   * refused is to a client as one that is silent: it may be asked to confirm, and that request may get lost.
   */
  readonly reduced: boolean
}

/**
 * Which node may crash once, and how it comes back. `kept`: with its memory. `sit-out`: without, and only when every lease
 * it may have forgotten is over, with numbers above the old ones (proposals). The rest is wrong: `at once`; `late` but
 * with its counters at nothing; `numbers`: at once, but with numbers repaired.
 */
export type Crash = 'none' | 'kept' | 'sit-out' | 'at once' | 'late' | 'numbers'

export interface Exploration {
  readonly configuration: Configuration
  readonly states: number
  readonly transitions: number
  /** Probability that two states were taken for one. */
  readonly doubt: number
  readonly verdict: 'holds' | 'broken' | 'not exhausted'
  readonly why: string | undefined
  /** How it came to that. */
  readonly trail: readonly string[]
  readonly tookMs: number
}

/**
 * Walks through every state that can be reached, each once, until a promise is broken or there is none left: first in
 * breadth, because most wrong protocols show soon and so have a short history, then in depth, which needs less memory.
 */
export function explore(
  configuration: Configuration,
  limits: { states?: number; clock?: () => number } = {},
): Exploration {
  const clock = limits.clock ?? (() => performance.now())
  const mostStates = limits.states ?? Infinity
  const beganMs = clock()
  const walk = prepare(configuration)
  const { steps: trail, open } = inBreadth(walk, Math.min(MOST_KEPT, mostStates))
  inDepth(walk, open, mostStates)
  const { why, transitions } = walk
  const verdict = why !== undefined ? 'broken' : open.count > 0 ? 'not exhausted' : 'holds'
  const { count: states, doubt } = walk.seen
  const tookMs = clock() - beganMs
  return { configuration, states, transitions, doubt, verdict, why, trail, tookMs }
}

interface Walk {
  readonly protocol: Protocol
  readonly canonical: Canonical
  readonly seen: Seen
  readonly start: Uint8Array
  transitions: number
  /** The first promise that was broken. */
  why: string | undefined
}

function prepare(configuration: Configuration): Walk {
  const shape = shapeOf(configuration.nodes, configuration.proposals.length)
  const protocol = new Protocol(shape, configuration, new Steps(configuration.quick))
  const canonical = new Canonical(shape, renamings(configuration.proposals))
  return { protocol, canonical, seen: new Seen(), start: protocol.start(), transitions: 0, why: undefined }
}

/** So many states are kept with the way to them. */
const MOST_KEPT = 300_000

interface Reached {
  readonly steps: string[]
  /** States that are still to be looked at. */
  readonly open: StateList
}

/** The first broken promise with a shortest way to it, or else the states that are still to be looked at. */
function inBreadth(walk: Walk, most: number): Reached {
  const { protocol, canonical, seen, start } = walk
  const reached = new StateList(start.length)
  /** From which state, and by which of its moves. */
  const ways: { from: number; move: number }[] = [{ from: -1, move: 0 }]
  reached.push(start)
  seen.add(canonical.of(start))
  const state = start.slice()
  let way: number[] = []
  let at = 0
  for (; at < reached.count && reached.count < most && walk.why === undefined; at++) {
    reached.read(at, state)
    let move = 0
    protocol.moves(state, (next, broken) => {
      if (broken !== undefined && walk.why === undefined) {
        walk.why = broken
        way = [...wayTo(ways, at), move]
      }
      if (seen.add(canonical.of(next))) {
        reached.push(next)
        ways.push({ from: at, move })
      }
      move++
    })
    walk.transitions += move
  }
  const open = new StateList(start.length)
  for (; at < reached.count; at++) {
    reached.read(at, state)
    open.push(state)
  }
  return { steps: replayed(protocol, start, way), open }
}

/** All the rest, in any order. */
function inDepth(walk: Walk, open: StateList, mostStates: number): void {
  const { protocol, canonical, seen } = walk
  const state = walk.start.slice()
  const visit: Visit = (next, broken) => {
    walk.transitions++
    walk.why ??= broken
    if (seen.add(canonical.of(next))) open.push(next)
  }
  while (open.count > 0 && walk.why === undefined && seen.count <= mostStates) {
    open.pop(state)
    protocol.moves(state, visit)
  }
}

function wayTo(ways: readonly { from: number; move: number }[], at: number): number[] {
  const moves: number[] = []
  for (let back = at; back > 0; back = ways[back]!.from) moves.unshift(ways[back]!.move)
  return moves
}

/** What the moves are called that were made from the beginning. */
function replayed(protocol: Protocol, start: Uint8Array, moves: readonly number[]): string[] {
  const state = start.slice()
  const steps: string[] = []
  for (const chosen of moves) {
    const found: { next: Uint8Array; text: string }[] = []
    protocol.moves(state, (next, _broken, text) => found.push({ next: next.slice(), text: text() }))
    steps.push(found[chosen]!.text)
    state.set(found[chosen]!.next)
  }
  return steps
}

/** Orders of the clients in which each stands where one with its own proposal stood. */
function renamings(proposals: readonly number[]): number[][] {
  const orders = (rest: readonly number[]): number[][] =>
    rest.length === 0
      ? [[]]
      : rest.flatMap((first) => orders(rest.filter((other) => other !== first)).map((order) => [first, ...order]))
  return orders([...proposals.keys()]).filter((order) => order.every((from, to) => proposals[from] === proposals[to]))
}
