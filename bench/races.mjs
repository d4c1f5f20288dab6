import { Contest } from './contest.mjs'
import { bare, peers, ringfence } from './libraries.mjs'
import { inRounds, median, quantile } from './measure.mjs'

/** Races over so quickly are run several times in a round: a few milliseconds say little. */
const LEAST_MS = 300
const MOST_REPEATS = 12

/** How long it all may take. */
export const QUICK = { rounds: 3, peerRounds: 1, boundMs: 2_500, warmMs: 400 }
export const FULL = { rounds: 8, peerRounds: 3, boundMs: 20_000, warmMs: 2_000 }

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
  const { processes, waiters, rounds, peerRounds, boundMs, warmMs, who = [bare, ringfence, ...peers] } = plan
  const contests = []
  try {
    for (const library of who) {
      const contest = await Contest.open(library, servers, library === bare ? 1 : processes)
      contests.push(contest)
      await contest.warmUp(warmMs)
      // What waiting needs besides: the code for it, and the connections that are opened with the first wait.
      if (library === ringfence) await repeated(contest, waiters, boundMs)
    }
    const results = await inRounds(contests, rounds, async (contest, round) => {
      if (contest.library === bare) return [await contest.uncontended(LEAST_MS)]
      return contest.library.peer && round >= peerRounds ? [] : repeated(contest, waiters, boundMs)
    })
    const base = results.get(contests[0])
    return contests.map((contest) => row(contest.library, results.get(contest), base))
  } finally {
    for (const contest of contests) contest.close()
  }
}

async function repeated(contest, waiters, boundMs) {
  const outcomes = []
  const began = performance.now()
  while (contest.isOpen && outcomes.length < MOST_REPEATS && performance.now() - began < LEAST_MS) {
    outcomes.push(await contest.race(waiters, boundMs))
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
  const toBare = rounds.map(
    (round, i) => median(round.map((each) => each.perSecond)) / median(base[i].map((each) => each.perSecond)),
  )
  return {
    library: library === bare ? 'bare commands, uncontended' : library.name,
    perSecond: median(rates),
    spread: (quantile(rates, 0.75) - quantile(rates, 0.25)) / median(rates),
    p50Ms: middle('p50Ms'),
    p99Ms: middle('p99Ms'),
    ...(library === bare ? {} : { handOverMs: middle('handOverMs'), requestsPerSection: middle('requestsPerSection') }),
    unfairness: library === bare ? undefined : unfairness(finished),
    toBare: median(toBare),
  }
}

/** Over all races together: a single one is too short to tell bad luck from unfairness. */
function unfairness(outcomes) {
  const ratios = outcomes.map(({ shares }) => Math.max(...shares) / Math.max(Math.min(...shares), 0.5))
  return median(ratios)
}

/** Rate of the best peer, of those that did not finish what they came to. */
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
