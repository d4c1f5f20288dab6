import { oneAtATime } from '../compare.mjs'
import { bare } from '../libraries.mjs'
import { FULL, QUICK, races } from '../races.mjs'

/** How the cost grows with the nodes, and with the waiters. */
export const growth = {
  number: 8,
  title: 'how the cost grows',
  servers: 9,
  async run({ servers, quick, waiting: who }) {
    const [nodes, nodeRounds] = [[], []]
    for (const count of quick ? [1, 9] : [1, 3, 5, 9]) {
      const plan = { rounds: quick ? 8 : 60, warmMs: quick ? 100 : 1_000, who }
      const { rows, rounds } = await oneAtATime(servers.slice(0, count), plan)
      nodes.push(line(`nodes: ${count}`, rows, 'p50Ms'))
      nodeRounds.push({ title: `nodes: ${count}`, columns: [], rows: [], rounds })
    }
    const [waiters, waiterRounds] = [[], []]
    for (const count of quick ? [1_000] : [10, 100, 1_000]) {
      const length = quick ? { ...QUICK, rounds: 1 } : { ...FULL, rounds: 3, warmMs: 800 }
      const racing = who.filter((library) => library !== bare)
      const plan = { processes: 1, waiters: count, ...length, peerRounds: 1, who: racing }
      const { rows, rounds } = await races(servers.slice(0, 1), plan)
      waiters.push(line(`waiters: ${count}`, rows, 'perSecond'))
      waiterRounds.push({ title: `waiters: ${count}`, columns: [], rows: [], rounds })
    }
    return {
      tables: [
        { title: 'p50 of an uncontended section in ms', columns: columns(who, 3), rows: nodes },
        { title: 'sections per second on one node', columns: columns(who, 0), rows: waiters },
        ...nodeRounds,
        ...waiterRounds,
      ],
      goals: [],
    }
  },
}

function line(label, rows, key) {
  return { library: label, ...Object.fromEntries(rows.map((row) => [row.library, row[key]])) }
}

function columns(who, digits) {
  return [{ key: 'library', title: '' }, ...who.map(({ name }) => ({ key: name, title: name, digits }))]
}
