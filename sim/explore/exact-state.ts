import { CLIENT_WORDS, MOST_NUMBER } from './state.ts'

/** Of a client in the exact model: the number that is being confirmed, and how often it has risen. */
export const OWN = { confirming: CLIENT_WORDS, rounds: CLIENT_WORDS + 1 } as const
export const OWN_WORDS = 2

/**
 * Between a client and a node. `delivered`: the acquire has arrived. `reply`: its answer is on its way (a number, or
 * REFUSED). `heard`, `fence` and `votes` are the client's ballot. `asked`: for the number that is being confirmed. Then sets
 * of numbers: confirmations on their way, arrived, and their answers yes and higher on their way; `no` is one flag.
 */
export const LINK = {
  delivered: 0,
  reply: 1,
  heard: 2,
  fence: 3,
  votes: 4,
  asked: 5,
  sent: 6,
  arrived: 7,
  yes: 8,
  higher: 9,
  no: 10,
} as const
export const LINK_WORDS = 11

export const HEARD = { silent: 0, ours: 1, out: 2, failed: 3 } as const
export const REFUSED = MOST_NUMBER + 1
