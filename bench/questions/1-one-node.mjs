import { COMPARE_COLUMNS, oneAtATime } from '../compare.mjs'
import { judged } from '../goals.mjs'
import { against, againstAll } from '../ratios.mjs'

/** What does an uncontended lock cost on one Redis? One at a time, so that latency is all. */
export const oneNode = {
  number: 1,
  title: 'one node, uncontended, one at a time',
  async run({ servers, quick, free }) {
    const plan = { rounds: quick ? 40 : 700, warmMs: quick ? 1_000 : 6_000, who: free }
    const measured = await oneAtATime(servers.slice(0, 1), plan)
    return {
      tables: [{ title: '', columns: COMPARE_COLUMNS, ...measured }, againstAll(measured)],
      goals: judged(1, {
        '1-bare': against(measured, 'bare commands'),
        '1-redlock': against(measured, 'redlock 5 beta'),
        '1-semaphore': against(measured, 'redis-semaphore'),
      }),
    }
  },
}
