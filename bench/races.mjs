import { Contest } from './contest.mjs'
import { bare, peers, ringfence } from './libraries.mjs'
import { inRounds, median, quantile } from './measure.mjs'

/** Races over so quickly are run several times in a round: a few milliseconds say little. */
const LEAST_MS = 300
const MOST_REPEATS = 12

/** How long it all may take. */
export const QUICK = { rounds: 2, peerRounds: 1, boundMs: 2_000, warmMs: 300 }
export const FULL = { rounds: 8, peerRounds: 2, boundMs: 15_000, warmMs: 2_000 }

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
 * @property {readonly import('./libraries.mjs').Library[]} [who]
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {RacePlan} plan
 */
export async function races(servers, plan) {
  const { processes, rounds, peerRounds, warmMs, who = [bare, ringfence, ...peers] } = plan
  const contest = new Contest(servers, processes)
  try {
    for (const library of who) {
      await contest.open(library, warmMs)
      // What waiting needs besides: the code for it, and the connections that are opened with the first wait.
      if (library === ringfence) await repeated(contest, library, plan)
    }
    /** @type {Set<import('./libraries.mjs').Library>} once is enough */
    const unfinished = new Set()
    const results = await inRounds(who, rounds, async (library, round) => {
      if (library === bare) return [await contest.uncontended(library, LEAST_MS)]
      if ((library.peer && round >= peerRounds) || unfinished.has(library)) return []
      const outcomes = await repeated(contest, library, plan)
      if (outcomes.some((outcome) => outcome.unfinished)) unfinished.add(library)
      return outcomes
    })
    return who.map((library) => row(library, results.get(library), results.get(bare)))
  } finally {
    contest.close()
  }
}

async function repeated(contest, library, { waiters, boundMs }) {
  const outcomes = []
  const began = performance.now()
  while (outcomes.length < MOST_REPEATS && performance.now() - began < LEAST_MS) {
    outcomes.push(await contest.race(library, waiters, boundMs))
  }
  return outcomes
}

function row(library, rounds, base) {
  const outcomes = rounds.flat()
  const unfinished = outcomes.find((outcome) => outcome.unfinished)?.unfinished
  const finished = outcomes.filter((outcome) => !outcome.unfinished)
  if (unfinished !== undefined || finished.length === 0) {
    const { sections = 0, of = 0, ms = 0 } = unfinished ?? {}
    return {
      library: library.name,
      perSecond: (sections / ms) * 1000,
      note: `did not finish: ${sections} of ${of} in ${ms / 1000} s`,
    }
  }
  const middle = (key) => median(finished.map((each) => each[key]))
  const rates = finished.map(({ perSecond }) => perSecond)
  const ratios = rounds.map((round, i) => rateOf(round) / rateOf(base[i])).filter((each) => !Number.isNaN(each))
  return {
    library: library === bare ? 'bare commands, uncontended' : library.name,
    perSecond: median(rates),
    spread: (quantile(rates, 0.75) - quantile(rates, 0.25)) / median(rates),
    p50Ms: middle('p50Ms'),
    p99Ms: middle('p99Ms'),
    ...(library === bare ? {} : { handOverMs: middle('handOverMs'), requestsPerSection: middle('requestsPerSection') }),
    unfairness: library === bare ? undefined : unfairness(finished),
    toBare: median(ratios),
  }
}

function rateOf(outcomes) {
  return median(outcomes.map(({ perSecond }) => perSecond))
}

/** The busiest process's sections to the least busy one's, while all were waiting. */
function unfairness(outcomes) {
  return median(outcomes.map(({ shares }) => Math.max(...shares) / Math.max(Math.min(...shares), 0.5)))
}

/** Rate of the best peer; of one that did not finish, what it came to. */
export function bestOf(rows) {
  const names = peers.map(({ name }) => name)
  return Math.max(...rows.filter(({ library }) => names.includes(library)).map(({ perSecond }) => perSecond || 0))
}

export const RACE_COLUMNS = [
  { key: 'library', title: '' },
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
