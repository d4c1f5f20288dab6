import { bare, connect, scriptsAlone } from './libraries.mjs'
import { asked, blocks, uncontended, WARM_SECTIONS, warmUp } from './measure.mjs'
import { median, percentiles, Rounds, shuffled, spread, trimmedMean } from './rounds.mjs'
import { emptyServers } from './servers.mjs'

/** How many sections tell what a section asks of the servers: it is the same every time. */
const COUNTED = 50

/**
 * Every variant on the same servers, each on connections of its own, for as long as `work` takes. Names of its own as well: some
 * put other things under a key than others.
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {readonly import('./libraries.mjs').Library[]} who
 */
export async function opened(servers, who, work) {
  await emptyServers(servers)
  const entries = []
  try {
    for (const library of who) {
      const clients = await connect(servers.map(({ port }) => port))
      const tag = `free:${library.name}`
      const entry = { library, name: library.name, clients, tag, lock: { close: async () => undefined } }
      entries.push(entry)
      try {
        entry.lock = await library.open(clients)
      } catch (error) {
        if (library !== scriptsAlone) throw error
        process.stderr.write(`${library.name} is left out: ${error.message}\n`)
        entries.pop()
        for (const client of clients) client.disconnect()
      }
    }
    return await work(entries)
  } finally {
    for (const { lock, clients } of entries) {
      for (const client of clients) client.disconnect()
      await lock.close()
    }
  }
}

/**
 * One at a time: blocks of all variants in turns, in one process.
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {{ rounds: number, warmMs: number, who: readonly import('./libraries.mjs').Library[] }} plan
 */
export function oneAtATime(servers, { rounds, warmMs, who }) {
  return opened(servers, who, async (entries) => {
    for (const { lock, tag } of entries) await warmUp(lock, { tag, atMostMs: warmMs, sections: WARM_SECTIONS })
    // Caches and V8's guesses are those of all variants in turns, not of one alone.
    for (let round = 0; round < rounds / 10; round++) await blocks(entries)
    const kept = new Rounds('µs a section', names(entries))
    const sections = new Map(entries.map((entry) => [entry, []]))
    for (let round = 0; round < rounds; round++) {
      const took = await blocks(entries)
      kept.add(new Map([...took].map(([{ name }, ms]) => [name, mean(ms) * 1000])))
      for (const [entry, ms] of took) sections.get(entry).push(...ms)
    }
    const rows = []
    for (const entry of entries) {
      const ms = sections.get(entry)
      rows.push({
        library: entry.name,
        perSecond: 1000 / trimmedMean(ms),
        spread: spread(kept.of(entry.name)),
        ...percentiles(ms),
        ...(await asked(entry, servers, COUNTED)),
        toBare: toBare(kept, entry),
      })
    }
    return { rows, rounds: kept }
  })
}

/**
 * Many at a time: short windows of all variants in turns, in one process.
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {{ rounds: number, ms: number, warmMs: number, inFlight: number, who: readonly import('./libraries.mjs').Library[] }} plan
 */
export function manyAtATime(servers, { rounds, ms, warmMs, inFlight, who }) {
  return opened(servers, who, async (entries) => {
    for (const { lock, tag } of entries) await warmUp(lock, { inFlight, tag, atMostMs: warmMs })
    const kept = new Rounds('sections a second', names(entries))
    const windows = new Map(entries.map((entry) => [entry, []]))
    for (let round = 0; round < rounds; round++) {
      const rates = new Map()
      for (const entry of shuffled(entries)) {
        await uncontended(entry.lock, { ms: ms * 0.2, inFlight, tag: entry.tag })
        const window = await uncontended(entry.lock, { ms, inFlight, tag: entry.tag })
        windows.get(entry).push(window)
        rates.set(entry.name, window.perSecond)
      }
      kept.add(rates)
    }
    const rows = entries.map((entry) => {
      const middle = (key) => median(windows.get(entry).map((window) => window[key]))
      return {
        library: entry.name,
        perSecond: middle('perSecond'),
        spread: spread(kept.of(entry.name)),
        p50Ms: middle('p50Ms'),
        p99Ms: middle('p99Ms'),
        toBare: toBare(kept, entry),
      }
    })
    return { rows, rounds: kept }
  })
}

function names(entries) {
  return entries.map(({ name }) => name)
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

function toBare(kept, { name }) {
  const { value } = kept.ratio(name, bare.name)
  return Number.isNaN(value) ? undefined : value
}

export const COMPARE_COLUMNS = [
  { key: 'library', title: '' },
  { key: 'perSecond', title: 'sections/s', digits: 0 },
  { key: 'spread', title: 'spread', spread: true },
  { key: 'p50Ms', title: 'p50 ms', digits: 3 },
  { key: 'p99Ms', title: 'p99 ms', digits: 3 },
  { key: 'requestsPerSection', title: 'requests', digits: 1 },
  { key: 'commandsPerSection', title: 'with scripts', digits: 1 },
  { key: 'toBare', title: 'to bare', ratio: true },
]
