import { setTimeout as sleep } from 'node:timers/promises'
import { requests } from './libraries.mjs'
import { counts, resetCounts } from './servers.mjs'

/** Long enough that no library loses its lock to a noisy machine. */
export const TTL_MS = 30_000

/** After this many sections, more did not make any library faster. */
export const WARM_SECTIONS = 10_000

/**
 * @typedef {object} Slice
 * @property {number} perSecond
 * @property {number} p50Ms
 * @property {number} p99Ms
 * @property {number} [requestsPerSection]
 * @property {number} [commandsPerSection]
 */

/** Sections for this many ms, this many at a time, each on its own resource. @returns {Promise<Slice & { sections: number }>} */
export async function uncontended(lock, { ms, inFlight = 1, tag = 'bench' }) {
  /** @type {number[]} */
  const tookMs = []
  const began = performance.now()
  const until = began + ms
  let ended = began
  const work = async (_, worker) => {
    for (let i = 0; ; i++) {
      const start = performance.now()
      if (start >= until) return
      // A few names each, in turn, as an application would have; the servers' keys stay few.
      const handle = await lock.acquire(`${tag}:${worker}:${i % 16}`, TTL_MS)
      await lock.release(handle)
      ended = performance.now()
      tookMs.push(ended - start)
    }
  }
  await Promise.all(Array.from({ length: inFlight }, work))
  return { sections: tookMs.length, perSecond: (tookMs.length / (ended - began)) * 1000, ...percentiles(tookMs) }
}

/** V8 optimises by how often code has run, so warm is a number of sections; bounded, for a machine that is very busy. */
export async function warmUp(lock, { inFlight, tag, atMostMs }) {
  const until = performance.now() + atMostMs
  let sections = 0
  while (sections < WARM_SECTIONS && performance.now() < until) {
    sections += (await uncontended(lock, { ms: Math.min(100, atMostMs), inFlight, tag })).sections
  }
}

/** One slice, warmed up, with what it cost the servers. */
export async function slice(entry, servers, { ms, inFlight, tag }) {
  await uncontended(entry.lock, { ms: ms * 0.2, inFlight, tag })
  await resetCounts(servers)
  const measured = await uncontended(entry.lock, { ms, inFlight, tag })
  // A majority decides; what the slower nodes still had to do counts as well.
  await sleep(10)
  const calls = await counts(servers)
  return { ...measured, ...perSection(entry.library, calls, measured.sections) }
}

export function perSection(library, calls, sections) {
  let commands = 0
  for (const [name, number] of calls) if (!/^(config|info|flushall)/.test(name)) commands += number
  return { requestsPerSection: requests(library, calls) / sections, commandsPerSection: commands / sections }
}

/**
 * Everyone in every round, each round in another order: what the machine does meanwhile hits all alike, nobody is always
 * first, and nobody always follows the same neighbour.
 *
 * @template E, R
 * @param {readonly E[]} entries
 * @param {number} rounds
 * @param {(entry: E, round: number) => Promise<R>} measure
 * @returns {Promise<Map<E, R[]>>}
 */
export async function inRounds(entries, rounds, measure) {
  /** @type {Map<E, R[]>} */
  const results = new Map(entries.map((entry) => [entry, []]))
  for (let round = 0; round < rounds; round++) {
    const from = Math.floor(round / 2) % entries.length
    const order = [...entries.slice(from), ...entries.slice(0, from)]
    if (round % 2 === 1) order.reverse()
    for (const entry of order) results.get(entry)?.push(await measure(entry, round))
  }
  return results
}

/** The middle of the rounds for every figure, and how far the middle half of the rounds' rates lies apart. */
export function summary(slices) {
  const rates = slices.map(({ perSecond }) => perSecond)
  const middle = (key) => median(slices.map((each) => each[key]))
  return {
    perSecond: median(rates),
    spread: (quantile(rates, 0.75) - quantile(rates, 0.25)) / median(rates),
    p50Ms: middle('p50Ms'),
    p99Ms: middle('p99Ms'),
    requestsPerSection: middle('requestsPerSection'),
    commandsPerSection: middle('commandsPerSection'),
  }
}

/** Round by round, since a round's slices share the machine's mood; then the middle. */
export function ratio(slices, base) {
  return median(slices.map(({ perSecond }, round) => perSecond / base[round].perSecond))
}

export function percentiles(values) {
  return { p50Ms: quantile(values, 0.5), p99Ms: quantile(values, 0.99) }
}

export function median(values) {
  return quantile(values, 0.5)
}

export function quantile(values, part) {
  if (values.length === 0) return NaN
  const sorted = values.toSorted((a, b) => a - b)
  const at = (sorted.length - 1) * part
  const low = Math.floor(at)
  const below = sorted[low]
  return below + ((sorted[low + 1] ?? below) - below) * (at - low)
}
