import { askOnce } from '../child.mjs'
import { judged } from '../goals.mjs'
import { bare } from '../libraries.mjs'
import { against, bestPeer } from '../ratios.mjs'
import { median, Rounds, shuffled, spread } from '../rounds.mjs'
import { emptyServers } from '../servers.mjs'

const SECTIONS = 200

/** What do the first sections of a process cost, before V8 has optimised anything? A new process for every variant and round. */
export const cold = {
  number: 9,
  title: `cold: the first ${SECTIONS} sections of a process, one at a time`,
  async run({ servers, quick, waiting }) {
    const one = await first(servers.slice(0, 1), waiting, quick ? 2 : 12)
    const five = await first(servers.slice(0, 5), waiting, quick ? 2 : 12)
    return {
      tables: [
        { title: 'one node', columns: COLUMNS, ...one },
        { title: 'five nodes', columns: COLUMNS, ...five },
      ],
      goals: judged(9, { '9-one': against(one, bare.name), '9-five': against(five, bare.name) }),
    }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'perSecond', title: 'sections/s', digits: 0 },
  { key: 'spread', title: 'spread', spread: true },
  { key: 'firstMs', title: 'the first ms', digits: 1 },
  { key: 'p50Ms', title: 'p50 ms', digits: 3 },
  { key: 'p99Ms', title: 'p99 ms', digits: 3 },
  { key: 'toBare', title: 'to bare', ratio: true },
  { key: 'toBest', title: 'to the best peer', ratio: true },
]

/** Connections are open and scripts loaded where a library does so by itself; importing it is not counted. */
async function first(servers, who, rounds) {
  const ports = servers.map(({ port }) => port)
  const kept = new Rounds(
    'sections a second',
    who.map(({ name }) => name),
  )
  const outcomes = new Map(who.map((library) => [library, []]))
  for (let round = 0; round < rounds; round++) {
    await emptyServers(servers)
    const rates = new Map()
    for (const library of shuffled(who)) {
      const outcome = await askOnce('first', { library, ports, sections: SECTIONS }, 30_000)
      outcomes.get(library)?.push(outcome)
      rates.set(library.name, outcome.perSecond)
    }
    kept.add(rates)
  }
  const rows = who.map((library) => {
    const middle = (key) => median(outcomes.get(library).map((each) => each[key]))
    return {
      library: library.name,
      perSecond: middle('perSecond'),
      spread: spread(kept.of(library.name)),
      firstMs: middle('firstMs'),
      p50Ms: middle('p50Ms'),
      p99Ms: middle('p99Ms'),
      toBare: kept.ratio(library.name, bare.name).value,
    }
  })
  const best = bestPeer(rows, { key: 'toBare' }).library
  return { rows: rows.map((row) => ({ ...row, toBest: kept.ratio(row.library, best).value })), rounds: kept }
}
