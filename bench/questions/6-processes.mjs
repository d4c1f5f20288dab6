import { of, target } from '../compare.mjs'
import { bestOf, FULL, QUICK, RACE_COLUMNS, races } from '../races.mjs'

/** Four processes, 50 waiters each, started together: the lock has to travel between them, and fairly. */
export const processes = {
  number: 6,
  title: 'four processes with 50 waiters each, one resource, one section each',
  async run({ servers, quick }) {
    const plan = { processes: 4, waiters: 50, ...(quick ? QUICK : FULL) }
    const one = await races(servers.slice(0, 1), plan)
    const five = await races(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: RACE_COLUMNS, rows: one },
        { title: 'five nodes', columns: RACE_COLUMNS, rows: five },
      ],
      targets: [
        target('one node: of the best peer', of(one, 'ringfence').perSecond / bestOf(one), { atLeast: 5 }),
        target('five nodes: of the best peer', of(five, 'ringfence').perSecond / bestOf(five), { atLeast: 10 }),
        target('one node: busiest process to least busy', of(one, 'ringfence').unfairness, { atMost: 2 }),
        target('five nodes: busiest process to least busy', of(five, 'ringfence').unfairness, { atMost: 2 }),
      ],
    }
  },
}
