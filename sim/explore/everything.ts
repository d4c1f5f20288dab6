import { EXPLORATIONS, PROJECTIONS, REFINEMENTS, WRONG_ADOPTIONS, WRONG_RESTARTS } from './catalogue.ts'
import { ELECTIONS, WRONG_ELECTIONS } from './elections/catalogue.ts'
import { Elections } from './elections/explore.ts'
import { readable } from './elections/readable.ts'
import { explore, type Explored, type Limits } from './explore.ts'
import { exploreLine, HAND_OVER_LINES, LINES, SHARED_LINES, WRONG_LINES } from './line/catalogue.ts'
import { ONE_NODE, WRONG_NODES } from './one-node/catalogue.ts'
import { exploreOneNode } from './one-node/model.ts'
import { project } from './one-node/projection.ts'
import { refine } from './refinement.ts'
import type { Sized } from './size.ts'

type How<T> = (one: T, limits: Limits, name: string) => Explored | Promise<Explored>

/** One configuration of any of the catalogues. */
interface Entry extends Sized {
  readonly name: string
  readonly wanted: 'holds' | 'broken'
  explore(limits: Limits): Explored | Promise<Explored>
}

export interface Choice {
  /** A name, or else a part of some; of any size. */
  readonly only?: string | undefined
  /** Not only the small ones. */
  readonly all?: boolean | undefined
  /** How many states of each. */
  readonly most?: number | undefined
}

/** How many states of those that no run has come to the end of, unless more or fewer are asked for. */
const MOST_OF_UNFINISHED = 15_000_000

const ENTRIES: readonly Entry[] = [
  ...right('', EXPLORATIONS, explore),
  ...right('loose can what exact can: ', REFINEMENTS, (_one, limits, name) => refine(EXPLORATIONS[name]!, limits)),
  ...wrong('', { ...WRONG_RESTARTS, ...WRONG_ADOPTIONS }, explore),
  ...right('', { ...LINES, ...HAND_OVER_LINES, ...SHARED_LINES }, exploreLine),
  ...wrong('', WRONG_LINES, exploreLine),
  ...right('one node: ', ONE_NODE, exploreOneNode),
  ...right('each node is one node: ', PROJECTIONS, (_one, limits, name) => project(EXPLORATIONS[name]!, limits)),
  ...wrong('one node ', WRONG_NODES, exploreOneNode),
  ...right('an election: ', ELECTIONS, async (one, limits) => new Elections(await readable(), one).explore(limits)),
  ...wrong('an election that ', WRONG_ELECTIONS, async (one, limits) =>
    new Elections(await readable(one.change), one).explore(limits),
  ),
]

function right<T extends Sized>(kind: string, all: Readonly<Record<string, T>>, how: How<T>): Entry[] {
  return Object.entries(all).map(([name, one]) => ({
    name: kind + name,
    size: one.size,
    wanted: 'holds',
    explore: (limits) => how(one, limits, name),
  }))
}

function wrong<T>(kind: string, all: Readonly<Record<string, T>>, how: How<T>): Entry[] {
  return Object.entries(all).map(([name, one]) => ({
    name: `wrong: ${kind}${name}`,
    size: 'small',
    wanted: 'broken',
    explore: (limits) => how(one, limits, name),
  }))
}

export function chosen({ only, all = false }: Choice): readonly Entry[] {
  if (only === undefined) return ENTRIES.filter(({ size }) => all || size === 'small')
  const exact = ENTRIES.filter(({ name }) => name === only)
  return exact.length > 0 ? exact : ENTRIES.filter(({ name }) => name.includes(only))
}

/** Explores what is chosen, and tells each result. Whether all is as it should be: what was not exhausted may be so, if no more was asked for. */
export async function exploreChosen(choice: Choice, tell: (line: string) => void): Promise<boolean> {
  const entries = chosen(choice)
  if (entries.length === 0) tell(`no configuration has '${choice.only}' in its name`)
  let isRight = entries.length > 0
  for (const entry of entries) {
    const { name, size, wanted } = entry
    const states = choice.most ?? (size === 'unfinished' ? MOST_OF_UNFINISHED : Infinity)
    const told = (seen: number, open: number): void =>
      console.error(`${name}: ${seen} states so far, ${open} of them still to be looked at`)
    const { verdict, why, trail, transitions, doubt, tookMs, states: seen } = await entry.explore({ states, told })
    const because = why === undefined ? '' : ` (${why})`
    tell(
      `${name}: ${verdict}${because}; ${seen} states, ${transitions} transitions, ${(tookMs / 1000).toFixed(1)} s, hash doubt ${doubt.toExponential(0)}`,
    )
    if (verdict === 'broken') for (const step of trail) tell(`    ${step}`)
    if (verdict !== wanted && !(wanted === 'holds' && verdict === 'not exhausted')) isRight = false
  }
  return isRight
}
