import { bare, connect, peers, uncontendedLibraries } from './libraries.mjs'
import { inRounds, ratio, slice, summary, warmUp } from './measure.mjs'
import { emptyServers } from './servers.mjs'

/** The warm-up may take as long as this many slices: 2.4 s in full, 1 s in the short version. */
const WARM_SLICES = 12

/**
 * All libraries on the same servers without contention, as rows for a table.
 *
 * @param {import('./servers.mjs').Server[]} servers
 * @param {{ rounds: number, ms: number, inFlight?: number, who?: readonly import('./libraries.mjs').Library[] }} plan
 */
export async function compare(servers, { rounds, ms, inFlight = 1, who = uncontendedLibraries }) {
  await emptyServers(servers)
  const entries = []
  for (const library of who) {
    const clients = await connect(servers.map(({ port }) => port))
    entries.push({ library, clients, lock: library.open(clients) })
  }
  try {
    for (const entry of entries) await warmUp(entry.lock, { inFlight, tag: tag(entry), atMostMs: ms * WARM_SLICES })
    const results = await inRounds(entries, rounds, (entry) => slice(entry, servers, { ms, inFlight, tag: tag(entry) }))
    const base = results.get(entries.find(({ library }) => library === bare) ?? entries[0])
    return entries.map((entry) => {
      const slices = results.get(entry)
      return { library: entry.library.name, ...summary(slices), toBare: ratio(slices, base) }
    })
  } finally {
    for (const { lock, clients } of entries) {
      await lock.close()
      for (const client of clients) client.disconnect()
    }
  }
}

/** Names of its own for each library: some put other things under a key than others. */
function tag({ library }) {
  return `free:${library.name}`
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

/** The row of a library. */
export function of(rows, name) {
  return rows.find(({ library }) => library === name)
}

/** The peer that does best, by the figure that counts. */
export function bestPeer(rows, key = 'perSecond') {
  const others = rows.filter(({ library }) => peers.some(({ name }) => name === library))
  return others.reduce((best, row) => ((row[key] ?? 0) > (best[key] ?? 0) ? row : best))
}

/** What was asked for and what came out. @param {string} text @param {number} value @param {{ atLeast?: number, atMost?: number }} goal */
export function target(text, value, goal) {
  const reached = value >= (goal.atLeast ?? -Infinity) && value <= (goal.atMost ?? Infinity)
  return { text, value, ...goal, reached }
}
