import { of, target } from '../compare.mjs'
import { bestOf, FULL, QUICK, RACE_COLUMNS, races } from '../races.mjs'

const COLUMNS = RACE_COLUMNS.filter(({ key }) => key !== 'unfairness')

/** 200 waiters in one process on one resource, one section each. (In a loop, the one awake would hog the key.) */
export const waiters = {
  number: 5,
  title: '200 waiters in one process, one resource, one section each',
  async run({ servers, quick }) {
    const plan = { processes: 1, waiters: 200, ...(quick ? QUICK : FULL) }
    const one = await races(servers.slice(0, 1), plan)
    const five = await races(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: COLUMNS, rows: one },
        { title: 'five nodes', columns: COLUMNS, rows: five },
      ],
      targets: [
        target('one node: of the bare uncontended rate', of(one, 'ringfence').toBare, { atLeast: 1 }),
        target('one node: of the best peer', of(one, 'ringfence').perSecond / bestOf(one), { atLeast: 20 }),
        target('five nodes: of the bare uncontended rate', of(five, 'ringfence').toBare, { atLeast: 0.5 }),
      ],
    }
  },
}
