import { setTimeout as sleep } from 'node:timers/promises'
import { requests } from './libraries.mjs'
import { percentiles, shuffled } from './rounds.mjs'
import { counts, resetCounts } from './servers.mjs'

/** Long enough that no library loses its lock to a noisy machine. */
export const TTL_MS = 30_000

/** After this many sections, more did not make any library faster. */
export const WARM_SECTIONS = 10_000

/** One at a time: sections of one variant in a row, and how many of them only bring its code back into the caches. */
const BLOCK = { sections: 8, uncounted: 2 }

/** Sections for this many ms, this many at a time, each on its own resource. */
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
export async function warmUp(lock, { inFlight = 1, tag, atMostMs, sections = WARM_SECTIONS }) {
  const until = performance.now() + atMostMs
  let done = 0
  while (done < sections && performance.now() < until) {
    done += (await uncontended(lock, { ms: Math.min(100, atMostMs), inFlight, tag })).sections
  }
}

/** This many sections, one after the other. @returns {Promise<number[]>} the ms that each took */
export async function sectionsOf(lock, count, tag) {
  const tookMs = []
  for (let i = 0; i < count; i++) {
    const start = performance.now()
    const handle = await lock.acquire(`${tag}:${i % 16}`, TTL_MS)
    await lock.release(handle)
    tookMs.push(performance.now() - start)
  }
  return tookMs
}

/**
 * One block of everyone, in a random order: a round takes some 30 ms, so that what the machine does meanwhile hits all alike.
 *
 * @template {{ lock: import('./libraries.mjs').Lock, tag: string }} E
 * @param {readonly E[]} entries
 * @returns {Promise<Map<E, number[]>>} the ms of the sections that count
 */
export async function blocks(entries) {
  /** @type {Map<E, number[]>} */
  const took = new Map()
  for (const entry of shuffled(entries)) {
    took.set(entry, (await sectionsOf(entry.lock, BLOCK.sections, entry.tag)).slice(BLOCK.uncounted))
  }
  return took
}

/** What a section asks of the servers. */
export async function asked(entry, servers, sections) {
  await resetCounts(servers)
  await sectionsOf(entry.lock, sections, entry.tag)
  // A majority decides; what the slower nodes still had to do counts as well.
  await sleep(20)
  return perSection(entry.library, await counts(servers), sections)
}

export function perSection(library, calls, sections) {
  let commands = 0
  for (const [name, number] of calls) if (!/^(config|info|flushall)/.test(name)) commands += number
  return { requestsPerSection: requests(library, calls) / sections, commandsPerSection: commands / sections }
}
