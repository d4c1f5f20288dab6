import { compare, COMPARE_COLUMNS, of, target } from '../compare.mjs'

/** How many sections fit through one process? 64 at a time, each on a resource of its own. */
export const inFlight = {
  number: 3,
  title: '64 in flight, distinct resources',
  async run({ servers, quick }) {
    const plan = { rounds: quick ? 4 : 20, ms: quick ? 80 : 200, inFlight: 64 }
    const one = await compare(servers.slice(0, 1), plan)
    const five = await compare(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: COMPARE_COLUMNS, rows: one },
        { title: 'five nodes', columns: COMPARE_COLUMNS, rows: five },
      ],
      targets: [
        target('one node: of the bare commands', of(one, 'ringfence').toBare, { atLeast: 0.85 }),
        target('five nodes: of the bare commands', of(five, 'ringfence').toBare, { atLeast: 0.85 }),
      ],
    }
  },
}
