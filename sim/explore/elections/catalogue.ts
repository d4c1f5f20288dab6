import type { Sized } from '../size.ts'
import type { ElectionConfiguration } from './explore.ts'
import type { Change } from './readable.ts'

export const ELECTIONS: Readonly<Record<string, ElectionConfiguration & Sized>> = {
  'all are asked at once': { nodes: 3, inOrder: false, most: 2, size: 'small' },
  'one is asked first': { nodes: 3, inOrder: true, most: 2, size: 'small' },
  'one is asked first, numbers to 3': { nodes: 3, inOrder: true, most: 3, size: 'large' },
  'all are asked at once, numbers to 3': { nodes: 3, inOrder: false, most: 3, size: 'large' },
}

const all: ElectionConfiguration = { nodes: 3, inOrder: false, most: 2 }
const inOrder: ElectionConfiguration = { ...all, inOrder: true }

/** Elections that look right and are not; each must be found. */
export const WRONG_ELECTIONS: Readonly<Record<string, ElectionConfiguration & { readonly change: Change }>> = {
  'forgets a grant that comes late': {
    ...all,
    change: ['else if (answer.kind !== "out") this._plan.late(index, false);', ''],
  },
  'forgets a failure that comes late': { ...all, change: ['this._plan.late(index, true);', ''] },
  'takes the number to confirm for its token when the time is up': {
    ...inOrder,
    most: 3,
    change: ['decision.kind === "won" ? decision.token : void 0', 'decision.token'],
  },
  'wins with a vote too few': {
    ...all,
    change: ['this._alike.length >= this._quorum', 'this._alike.length >= this._quorum - 1'],
  },
  'goes on after the first has refused': {
    ...inOrder,
    change: ['if (kind === "refused") return this._decide(void 0);', ''],
  },
  'does not ask again who said no before it had granted': {
    ...inOrder,
    most: 3,
    change: ['if (answer.kind === "granted") this._asked?.delete(index);', ''],
  },
  'leaves a node that granted and then said no': {
    ...inOrder,
    most: 3,
    change: ['if (state === "out" && votes.length > 0) return true;', ''],
  },
}
