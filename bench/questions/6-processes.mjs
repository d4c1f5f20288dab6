import { judged } from '../goals.mjs'
import { ringfence } from '../libraries.mjs'
import { FULL, QUICK, RACE_COLUMNS, races } from '../races.mjs'
import { againstBest } from '../ratios.mjs'

/** Four processes, 50 waiters each, started together: the lock has to travel between them, and fairly. */
export const processes = {
  number: 6,
  title: 'four processes with 50 waiters each, one resource, one section each',
  async run({ servers, quick, waiting, withDefaults }) {
    const plan = { processes: 4, waiters: 50, who: waiting, alone: withDefaults, ...(quick ? QUICK : FULL) }
    const one = await races(servers.slice(0, 1), plan)
    const five = await races(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: RACE_COLUMNS, rows: one.rows, rounds: one.rounds },
        { title: 'five nodes', columns: RACE_COLUMNS, rows: five.rows, rounds: five.rounds },
        { title: 'busiest to least busy, one node', columns: [], rows: [], rounds: one.fairness },
        { title: 'busiest to least busy, five nodes', columns: [], rows: [], rounds: five.fairness },
      ],
      goals: judged(6, {
        '6-one': againstBest(one),
        '6-five': againstBest(five),
        '6-one-defaults': againstBest(one, 'defaults'),
        '6-five-defaults': againstBest(five, 'defaults'),
        '6-one-fair': one.fairness.middle(ringfence.name),
        '6-five-fair': five.fairness.middle(ringfence.name),
      }),
    }
  },
}
