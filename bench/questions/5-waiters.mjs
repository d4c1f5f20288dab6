import { judged } from '../goals.mjs'
import { FULL, QUICK, RACE_COLUMNS, races } from '../races.mjs'
import { againstBest } from '../ratios.mjs'

const COLUMNS = RACE_COLUMNS.filter(({ key }) => key !== 'unfairness')

/** 200 waiters in one process on one resource, one section each. (In a loop, the one awake would hog the key.) */
export const waiters = {
  number: 5,
  title: '200 waiters in one process, one resource, one section each',
  async run({ servers, quick, waiting }) {
    const plan = { processes: 1, waiters: 200, who: waiting, ...(quick ? QUICK : FULL) }
    const one = await races(servers.slice(0, 1), plan)
    const five = await races(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: COLUMNS, rows: one.rows, rounds: one.rounds },
        { title: 'five nodes', columns: COLUMNS, rows: five.rows, rounds: five.rounds },
      ],
      goals: judged(5, { '5-one': againstBest(one), '5-five': againstBest(five) }),
    }
  },
}
