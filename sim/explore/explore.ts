import type { Configuration } from './configuration.ts'
import { Exact } from './exact.ts'
import { Fingerprint } from './fingerprint.ts'
import { Loose } from './loose.ts'
import type { Visit } from './model.ts'
import { Seen, StateList, type State } from './state.ts'

export interface Exploration extends Explored {
  readonly configuration: Configuration
}

export interface Explored {
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

export interface Limits {
  readonly states?: number
  readonly clock?: () => number
  readonly told?: (states: number, open: number) => void
}

/** What can be explored: where it begins, and what may happen next, in the same order each time. */
export interface Explorable {
  start(): State
  moves(state: State, visit: Visit): void
}

/** Of states that count as one, the same. */
export interface Fingerprints {
  readonly a: number
  readonly b: number
  of(state: State): void
}

export function explore(configuration: Configuration, limits: Limits = {}): Exploration {
  const model = configuration.model === 'exact' ? new Exact(configuration) : new Loose(configuration)
  const fingerprint = new Fingerprint(model.shape, configuration.proposals)
  return { configuration, ...exploreAll(model, fingerprint, limits) }
}

/**
 * Walks through every state that can be reached, each once, until a promise is broken or there is none left: first in
 * breadth, because most wrong protocols show soon and so have a short history, then in depth, which needs less memory.
 */
export function exploreAll(model: Explorable, fingerprint: Fingerprints, limits: Limits = {}): Explored {
  const clock = limits.clock ?? (() => performance.now())
  const mostStates = limits.states ?? Infinity
  const beganMs = clock()
  const walk: Walk = { model, fingerprint, seen: new Seen(), start: model.start(), transitions: 0, why: undefined }
  const { steps: trail, open } = inBreadth(walk, Math.min(MOST_KEPT, mostStates))
  inDepth(walk, open, mostStates, limits.told)
  const { why, transitions } = walk
  const verdict = why !== undefined ? 'broken' : open.count > 0 ? 'not exhausted' : 'holds'
  const { count: states, doubt } = walk.seen
  const tookMs = clock() - beganMs
  return { states, transitions, doubt, verdict, why, trail, tookMs }
}

interface Walk {
  readonly model: Explorable
  readonly fingerprint: Fingerprints
  readonly seen: Seen
  readonly start: State
  transitions: number
  /** The first promise that was broken. */
  why: string | undefined
}

function isNew({ fingerprint, seen }: Walk, state: State): boolean {
  fingerprint.of(state)
  return seen.add(fingerprint.a, fingerprint.b)
}

/** This many states are kept with the way to them. */
const MOST_KEPT = 300_000

interface Reached {
  readonly steps: string[]
  /** States that are still to be looked at. */
  readonly open: StateList
}

/** The first broken promise with a shortest way to it, or else the states that are still to be looked at. */
function inBreadth(walk: Walk, most: number): Reached {
  const { model, start } = walk
  const reached = new StateList(start.length)
  /** From which state, and by which of its moves. */
  const ways: { from: number; move: number }[] = [{ from: -1, move: 0 }]
  reached.push(start)
  isNew(walk, start)
  const state = start.slice()
  let way: number[] = []
  let at = 0
  for (; at < reached.count && reached.count < most && walk.why === undefined; at++) {
    reached.read(at, state)
    let move = 0
    model.moves(state, (next, broken) => {
      if (broken !== undefined && walk.why === undefined) {
        walk.why = broken
        way = [...wayTo(ways, at), move]
      }
      if (isNew(walk, next)) {
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
  return { steps: replayed(model, start, way), open }
}

/** Progress is reported each time this many states were visited. */
const TOLD_EVERY = 5_000_000

/** All the rest, in any order. */
function inDepth(
  walk: Walk,
  open: StateList,
  mostStates: number,
  told: (states: number, open: number) => void = () => undefined,
): void {
  const { model, seen } = walk
  const state = walk.start.slice()
  let tellAt = TOLD_EVERY
  const visit: Visit = (next, broken) => {
    walk.transitions++
    walk.why ??= broken
    if (isNew(walk, next)) open.push(next)
  }
  while (open.count > 0 && walk.why === undefined && seen.count <= mostStates) {
    open.pop(state)
    model.moves(state, visit)
    if (seen.count < tellAt) continue
    told(seen.count, open.count)
    tellAt += TOLD_EVERY
  }
}

function wayTo(ways: readonly { from: number; move: number }[], at: number): number[] {
  const moves: number[] = []
  for (let back = at; back > 0; back = ways[back]!.from) moves.unshift(ways[back]!.move)
  return moves
}

/** What the moves are called that were made from the beginning. */
function replayed(model: Explorable, start: State, moves: readonly number[]): string[] {
  const state = start.slice()
  const steps: string[] = []
  for (const chosen of moves) {
    const found: { next: State; text: string }[] = []
    model.moves(state, (next, _broken, text) => found.push({ next: next.slice(), text: text() }))
    steps.push(found[chosen]!.text)
    state.set(found[chosen]!.next)
  }
  return steps
}
