import { compare } from '../compare.mjs'
import { bare, libraries, peers, ringfence } from '../libraries.mjs'
import { FULL, QUICK, races } from '../races.mjs'

/** How the cost grows with the nodes, and with the waiters. */
export const growth = {
  number: 8,
  title: 'how the cost grows',
  async run({ servers, quick }) {
    const who = quick ? [bare, ringfence, ...peers.slice(0, 1)] : libraries
    const nodes = []
    for (const count of quick ? [1, 5, 9] : [1, 3, 5, 7, 9]) {
      const rows = await compare(servers.slice(0, count), { rounds: quick ? 3 : 9, ms: quick ? 40 : 150, who })
      nodes.push(line(`nodes: ${count}`, rows, 'p50Ms'))
    }
    const waiters = []
    for (const count of quick ? [10, 1_000] : [1, 10, 100, 1_000]) {
      const plan = {
        processes: 1,
        waiters: count,
        ...(quick ? QUICK : FULL),
        rounds: quick ? 1 : 3,
        peerRounds: 1,
        who,
      }
      waiters.push(line(`waiters: ${count}`, await races(servers.slice(0, 1), plan), 'perSecond'))
    }
    return {
      tables: [
        { title: 'p50 of an uncontended section in ms', columns: columns(who, 3), rows: nodes },
        { title: 'sections per second on one node', columns: columns(who.slice(1), 0), rows: waiters },
      ],
      targets: [],
    }
  },
}

function line(label, rows, key) {
  return { library: label, ...Object.fromEntries(rows.map((row) => [row.library, row[key]])) }
}

function columns(who, digits) {
  return [{ key: 'library', title: '' }, ...who.map(({ name }) => ({ key: name, title: name, digits }))]
}
