import { bestPeer, compare, COMPARE_COLUMNS, of, target } from '../compare.mjs'

/** What does a quorum of five cost? The bare commands wait for all five; a majority is enough. */
export const fiveNodes = {
  number: 2,
  title: 'five nodes, uncontended, one at a time',
  async run({ servers, quick }) {
    const rows = await compare(servers.slice(0, 5), { rounds: quick ? 8 : 30, ms: quick ? 80 : 200 })
    const { toBare, perSecond } = of(rows, 'ringfence')
    return {
      tables: [{ title: '', columns: COMPARE_COLUMNS, rows }],
      targets: [
        target('of the bare commands', toBare, { atLeast: 1 }),
        target('of the best peer', perSecond / bestPeer(rows).perSecond, { atLeast: 1 }),
      ],
    }
  },
}
