import { promisesOf } from '../promises.mjs'

/** How many promises does a section make? Counted, not measured: it is the same on every machine and in every run. */
export const promises = {
  number: 10,
  title: 'promises a section, uncontended, one at a time',
  async run({ servers, free, baseline }) {
    const counted = [
      ...free.map((library) => ({ library, client: 'ioredis', label: library.name })),
      ...free
        .filter((library) => library.name === 'ringfence' || library === baseline)
        .map((library) => ({ library, client: 'node-redis', label: `${library.name}, node-redis` })),
    ]
    const rows = []
    for (const { library, client, label } of counted) {
      const on = async (count) =>
        (await promisesOf({ library, client, ports: servers.slice(0, count).map(({ port }) => port) })).section
      // Counts don't mind company.
      const [oneNode, fiveNodes] = await Promise.all([on(1), on(5)])
      rows.push({ library: label, oneNode, fiveNodes })
    }
    return { tables: [{ title: '', columns: COLUMNS, rows }], goals: [] }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'oneNode', title: 'one node', digits: 1 },
  { key: 'fiveNodes', title: 'five nodes', digits: 1 },
]
