import { bestPeer, compare, COMPARE_COLUMNS, of, target } from '../compare.mjs'

/** What does an uncontended lock cost on one Redis? One at a time, so that latency is all. */
export const oneNode = {
  number: 1,
  title: 'one node, uncontended, one at a time',
  async run({ servers, quick }) {
    const rows = await compare(servers.slice(0, 1), { rounds: quick ? 8 : 30, ms: quick ? 80 : 200 })
    const { toBare, perSecond } = of(rows, 'ringfence')
    return {
      tables: [{ title: '', columns: COMPARE_COLUMNS, rows }],
      targets: [
        target('of the bare commands', toBare, { atLeast: 0.9 }),
        target('of the best peer', perSecond / bestPeer(rows).perSecond, { atLeast: 0.95 }),
      ],
    }
  },
}
