import { Steps } from './steps.ts'
import { Protocol } from './protocol.ts'
import { Canonical, Seen, shapeOf } from './state.ts'

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
  const short = inBreadth(walk, Math.min(MOST_KEPT, mostStates))
  const { seen } = walk
  let { why } = short
  while (short.open.length > 0 && why === undefined && seen.count <= mostStates) {
    for (const { next, broken } of walk.protocol.moves(short.open.pop()!)) {
      walk.transitions++
      why ??= broken
      if (seen.add(walk.canonical.of(next))) short.open.push(next)
    }
  }
  const verdict = why !== undefined ? 'broken' : short.open.length > 0 ? 'not exhausted' : 'holds'
  const { count: states, doubt } = seen
  const tookMs = clock() - beganMs
  return { configuration, states, transitions: walk.transitions, doubt, verdict, why, trail: short.steps, tookMs }
}

interface Walk {
  readonly protocol: Protocol
  readonly canonical: Canonical
  readonly seen: Seen
  readonly start: Uint8Array
  transitions: number
}

function prepare(configuration: Configuration): Walk {
  const shape = shapeOf(configuration.nodes, configuration.proposals.length)
  const protocol = new Protocol(shape, configuration, new Steps(configuration.quick))
  const canonical = new Canonical(shape, renamings(configuration.proposals))
  return { protocol, canonical, seen: new Seen(), start: protocol.start(), transitions: 0 }
}

/** So many states are kept with the way to them. */
const MOST_KEPT = 300_000

/** The first broken promise with a shortest way to it, or else the states that are still to be looked at. */
function inBreadth(walk: Walk, most: number): { why: string | undefined; steps: string[]; open: Uint8Array[] } {
  const reached: { state: Uint8Array; from: number; text: () => string }[] = [
    { state: walk.start, from: -1, text: () => '' },
  ]
  let at = 0
  for (; at < reached.length && reached.length < most; at++) {
    for (const { text, next, broken } of walk.protocol.moves(reached[at]!.state)) {
      walk.transitions++
      if (broken !== undefined) {
        const steps = [text()]
        for (let back = at; back > 0; back = reached[back]!.from) steps.unshift(reached[back]!.text())
        return { why: broken, steps, open: [] }
      }
      if (walk.seen.add(walk.canonical.of(next))) reached.push({ state: next, from: at, text })
    }
  }
  return { why: undefined, steps: [], open: reached.slice(at).map(({ state }) => state) }
}

/** Orders of the clients in which each stands where one with its own proposal stood. */
function renamings(proposals: readonly number[]): number[][] {
  const orders = (rest: readonly number[]): number[][] =>
    rest.length === 0
      ? [[]]
      : rest.flatMap((first) => orders(rest.filter((other) => other !== first)).map((order) => [first, ...order]))
  return orders([...proposals.keys()]).filter((order) => order.every((from, to) => proposals[from] === proposals[to]))
}
