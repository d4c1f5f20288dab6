import { COMPARE_COLUMNS, oneAtATime } from '../compare.mjs'
import { judged } from '../goals.mjs'
import { against, againstAll, againstBest } from '../ratios.mjs'

/** What does a quorum of five cost? The bare commands wait for all five; a majority is enough. */
export const fiveNodes = {
  number: 2,
  title: 'five nodes, uncontended, one at a time',
  async run({ servers, quick, free }) {
    const plan = { rounds: quick ? 40 : 700, warmMs: quick ? 1_000 : 6_000, who: free }
    const measured = await oneAtATime(servers.slice(0, 5), plan)
    return {
      tables: [{ title: '', columns: COMPARE_COLUMNS, ...measured }, againstAll(measured)],
      goals: judged(2, {
        '2-bare': against(measured, 'bare commands'),
        '2-peer': againstBest(measured),
      }),
    }
  },
}
