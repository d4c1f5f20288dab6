import { COMPARE_COLUMNS, manyAtATime } from '../compare.mjs'
import { judged } from '../goals.mjs'
import { against, againstAll, againstBest } from '../ratios.mjs'

/** How many sections fit through one process? 64 at a time, each on a resource of its own. */
export const inFlight = {
  number: 3,
  title: '64 in flight, distinct resources',
  async run({ servers, quick, free }) {
    const plan = { rounds: quick ? 6 : 40, ms: 60, warmMs: quick ? 500 : 4_000, inFlight: 64, who: free }
    const one = await manyAtATime(servers.slice(0, 1), plan)
    const five = await manyAtATime(servers.slice(0, 5), plan)
    return {
      tables: [
        { title: 'one node', columns: COMPARE_COLUMNS, ...one },
        { title: 'five nodes', columns: COMPARE_COLUMNS, ...five },
        againstAll(one, 'ratios, one node'),
        againstAll(five, 'ratios, five nodes'),
      ],
      goals: judged(3, {
        '3-one-bare': against(one, 'bare commands'),
        '3-one-peer': againstBest(one),
        '3-five-bare': against(five, 'bare commands'),
        '3-five-peer': againstBest(five),
      }),
    }
  },
}
