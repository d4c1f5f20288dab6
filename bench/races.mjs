import { Contest } from './contest.mjs'
import { bare, tuned } from './libraries.mjs'
import { median, Rounds, shuffled, spread } from './rounds.mjs'

/** Races over so quickly are run several times in a round: a few milliseconds say little. */
const LEAST_MS = 300
const MOST_REPEATS = 12
/** Those with their defaults: no further race when they have taken that long. */
const MOST_APART = 3
const ENOUGH_APART_MS = 2_000

/** How long it all may take. */
export const QUICK = { rounds: 2, peerRounds: 1, boundMs: 2_000, warmMs: 200 }
export const FULL = { rounds: 10, peerRounds: 4, boundMs: 8_000, warmMs: 1_500 }

/**
 * All libraries race on the same servers; the bare commands don't wait, so they run free: one process, no contention.
 * Pollers take seconds a race and are alike from race to race, so they are in the first rounds only.
 *
 * @typedef {object} RacePlan
 * @property {number} processes
 * @property {number} waiters in each process
 * @property {number} rounds
 * @property {number} peerRounds
 * @property {number} boundMs
 * @property {number} warmMs
 * @property {readonly import('./libraries.mjs').Library[]} who
 * @property {readonly import('./libraries.mjs').Library[]} [alone] in processes of their own, one after the other
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {RacePlan} plan
 */
export async function races(servers, plan) {
  const { processes, rounds, alone = [] } = plan
  const who = plan.who.map((library) => tuned(library, processes, servers.length))
  const kept = new Rounds(
    'sections a second',
    [...who, ...alone].map(({ name }) => name),
  )
  const fairness = new Rounds('busiest to least busy', kept.names)
  /** @type {Map<import('./libraries.mjs').Library, object[]>} */
  const outcomes = new Map([...who, ...alone].map((library) => [library, []]))
  const contest = new Contest(servers, processes)
  try {
    for (const library of who) {
      await contest.open(library, plan.warmMs)
      // What waiting needs besides: the code for it, and the connections that are opened with the first wait.
      if (library !== bare)
        await repeated(contest, library, { ...plan, boundMs: 2_000 }, library.peer ? LEAST_MS : plan.warmMs)
    }
    /** @type {Set<import('./libraries.mjs').Library>} once is enough */
    const unfinished = new Set()
    for (let round = 0; round < rounds; round++) {
      const [rates, shares] = [new Map(), new Map()]
      for (const library of shuffled(who)) {
        if ((library.peer && round >= plan.peerRounds) || unfinished.has(library)) continue
        const some =
          library === bare ? [await contest.uncontended(library, LEAST_MS)] : await repeated(contest, library, plan)
        if (some.some((outcome) => outcome.unfinished)) unfinished.add(library)
        outcomes.get(library)?.push(...some)
        rates.set(library.name, median(some.map(({ perSecond }) => perSecond)))
        if (library !== bare) shares.set(library.name, median(some.map(unfairness)))
      }
      kept.add(rates)
      fairness.add(shares)
    }
  } finally {
    contest.close()
  }
  for (const library of alone) {
    for (const outcome of await apart(servers, library, plan)) {
      outcomes.get(library)?.push(outcome)
      kept.add(new Map([[library.name, outcome.perSecond]]))
    }
  }
  const rows = [...who, ...alone].map((library) => row(library, outcomes.get(library), kept))
  return { rows, rounds: kept, fairness }
}

/** A few races, of which nothing is left for the next library: some cannot be stopped while they wait. */
async function apart(servers, library, { processes, waiters, boundMs, warmMs }) {
  const contest = new Contest(servers, processes)
  try {
    await contest.open(library, warmMs / 3)
    const [outcomes, began] = [[], performance.now()]
    while (outcomes.length < MOST_APART && performance.now() - began < ENOUGH_APART_MS) {
      outcomes.push(await contest.race(library, waiters, boundMs))
      if (outcomes.at(-1).unfinished) break
    }
    return outcomes
  } finally {
    contest.close()
  }
}

async function repeated(contest, library, { waiters, boundMs }, leastMs = LEAST_MS) {
  const outcomes = []
  const [began, most] = [performance.now(), (MOST_REPEATS * leastMs) / LEAST_MS]
  while (outcomes.length < most && performance.now() - began < leastMs) {
    outcomes.push(await contest.race(library, waiters, boundMs))
  }
  return outcomes
}

function row(library, outcomes, kept) {
  const unfinished = outcomes.find((outcome) => outcome.unfinished)?.unfinished
  if (unfinished !== undefined) {
    const { sections, of, ms } = unfinished
    return {
      library: library.name,
      retryMs: library.retryMs,
      perSecond: (sections / ms) * 1000,
      note: `did not finish: ${sections} of ${of} in ${ms / 1000} s`,
    }
  }
  const middle = (key) => median(outcomes.map((each) => each[key]))
  const rates = outcomes.map(({ perSecond }) => perSecond)
  return {
    library: library === bare ? 'bare commands, uncontended' : library.name,
    retryMs: library.retryMs,
    perSecond: median(rates),
    spread: spread(rates),
    p50Ms: middle('p50Ms'),
    p99Ms: middle('p99Ms'),
    ...(library === bare ? {} : { handOverMs: middle('handOverMs'), requestsPerSection: middle('requestsPerSection') }),
    unfairness: library === bare ? undefined : median(outcomes.map(unfairness)),
    toBare: kept.ratio(library.name, bare.name).value,
  }
}

/** The busiest process's sections to the least busy one's, while all were waiting. */
function unfairness({ shares = [] }) {
  return Math.max(...shares) / Math.max(Math.min(...shares), 0.5)
}

export const RACE_COLUMNS = [
  { key: 'library', title: '' },
  { key: 'retryMs', title: 'retry ms', digits: 0 },
  { key: 'perSecond', title: 'sections/s', digits: 0 },
  { key: 'spread', title: 'spread', spread: true },
  { key: 'p50Ms', title: 'wait p50 ms', digits: 1 },
  { key: 'p99Ms', title: 'wait p99 ms', digits: 1 },
  { key: 'handOverMs', title: 'grant to grant ms', digits: 3 },
  { key: 'requestsPerSection', title: 'requests', digits: 1 },
  { key: 'toBare', title: 'to bare', ratio: true },
  { key: 'unfairness', title: 'busiest to least busy', ratio: true },
  { key: 'note', title: '' },
]
