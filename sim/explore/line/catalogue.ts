import { exploreAll, type Explored, type Limits } from '../explore.ts'
import type { Sized } from '../size.ts'
import { LineModel } from './model.ts'
import { LineFingerprint, type LineConfiguration } from './state.ts'

const plain: LineConfiguration = {
  nodes: 3,
  waiters: 2,
  owners: 1,
  newcomers: 0,
  heirs: 0,
  handOver: 'within',
  readers: [],
  inLine: true,
  duplicates: 0,
  expiries: 0,
  crashes: 0,
  lates: 0,
  giveUps: 0,
  deaths: 0,
  calmEvery: 1,
}

/** A claim may be lost, and another owner takes over the place. */
const SWAP = { owners: 2 } as const
const ALONE = { ...plain, ...SWAP, waiters: 1 }
/** The last of those that come by take over from the holder. */
const HEIR = { newcomers: 1, heirs: 1 } as const
const TICKET = { ...HEIR, handOver: 'ticket' } as const
const LARGE = { calmEvery: 16, size: 'large' } as const
const UNFINISHED = { ...LARGE, size: 'unfinished' } as const

export function exploreLine(configuration: LineConfiguration, limits: Limits = {}): Explored {
  const model = new LineModel(configuration)
  return exploreAll(model, new LineFingerprint(model.shape), limits)
}

/** A lock that is held, and its line. */
export const LINES: Readonly<Record<string, LineConfiguration & Sized>> = {
  'a line of two': { ...plain, size: 'small' },
  'a line of two that forms': { ...plain, inLine: false, size: 'small' },
  'a line of two, a repeated command': { ...plain, duplicates: 1, size: 'small' },
  'a line of two, a late command': { ...plain, lates: 1, size: 'small' },
  'a line of two, one gives up': { ...plain, giveUps: 1, size: 'small' },
  'a line of two, a crash': { ...plain, crashes: 1, size: 'small' },
  'a line of two, an expiry': { ...plain, expiries: 1, size: 'small' },
  'a line of one, a lost claim': { ...ALONE, size: 'small' },
  'a line of one, a lost claim, a repeated and a late command': { ...ALONE, duplicates: 1, lates: 1, size: 'small' },
  'a line of one, a newcomer': { ...plain, waiters: 1, newcomers: 1, size: 'small' },
  'a line of two, two expiries': { ...plain, expiries: 2, ...LARGE },
  'a line of two, a newcomer': { ...plain, newcomers: 1, ...LARGE },
  'a line of two that forms, a crash': { ...plain, inLine: false, crashes: 1, ...LARGE },
  'a line of two, a holder that ends, two expiries': { ...plain, deaths: 1, expiries: 2, ...LARGE },
  'a line of two, a repeated and a late command, two expiries, a crash': {
    ...plain,
    duplicates: 1,
    lates: 1,
    expiries: 2,
    crashes: 1,
    ...UNFINISHED,
  },
  'a line of one, a lost claim, two expiries, a crash': { ...ALONE, expiries: 2, crashes: 1, ...LARGE },
  'a line of two, lost claims': { ...plain, ...SWAP, ...LARGE },
  'a line of two, lost claims, a repeated command': { ...plain, ...SWAP, duplicates: 1, ...UNFINISHED },
  'a line of two, lost claims, a late command': { ...plain, ...SWAP, lates: 1, ...UNFINISHED },
  'a line of two, lost claims, two expiries': { ...plain, ...SWAP, expiries: 2, ...UNFINISHED },
  'a line of two, lost claims, a crash': { ...plain, ...SWAP, crashes: 1, ...UNFINISHED },
  'a line of two, five nodes': { ...plain, nodes: 5, ...LARGE },
  'a line of two, five nodes, an expiry': { ...plain, nodes: 5, expiries: 1, ...LARGE },
  'a line of two, five nodes, a repeated command': { ...plain, nodes: 5, duplicates: 1, ...LARGE },
  'a line of two, five nodes, a crash': { ...plain, nodes: 5, crashes: 1, ...UNFINISHED },
  'a line of one, five nodes, a hand-over': { ...plain, ...HEIR, nodes: 5, waiters: 1, ...LARGE },
  'a line of three that forms': { ...plain, waiters: 3, inLine: false, ...UNFINISHED },
}

/** A lock that is handed over while others are in its line. */
export const HAND_OVER_LINES: Readonly<Record<string, LineConfiguration & Sized>> = {
  'a line of one, a hand-over': { ...plain, ...HEIR, waiters: 1, size: 'small' },
  'a line of one, a hand-over, a crash': { ...plain, ...HEIR, waiters: 1, crashes: 1, ...LARGE },
  'a line of one, a hand-over, a repeated command, two expiries': {
    ...plain,
    ...HEIR,
    waiters: 1,
    duplicates: 1,
    expiries: 2,
    ...UNFINISHED,
  },
  'a line of one, a hand-over, a newcomer': { ...plain, ...HEIR, waiters: 1, newcomers: 2, ...UNFINISHED },
  'a line of two, a hand-over': { ...plain, ...HEIR, ...LARGE },
  'a line of one, an adoption': { ...plain, ...TICKET, waiters: 1, size: 'small' },
  'a line of one, an adoption, a crash': { ...plain, ...TICKET, waiters: 1, crashes: 1, ...LARGE },
  'a line of one, an adoption, a repeated command, two expiries': {
    ...plain,
    ...TICKET,
    waiters: 1,
    duplicates: 1,
    expiries: 2,
    ...UNFINISHED,
  },
  'a line of one, two adopt': { ...plain, ...TICKET, waiters: 1, newcomers: 2, heirs: 2, ...UNFINISHED },
  'a line of two, an adoption': { ...plain, ...TICKET, ...LARGE },
}

/** Nobody holds the lock, and these come by, each without standing in line. */
const comeBy = (kinds: string, more: Partial<LineConfiguration> = {}): LineConfiguration => ({
  ...plain,
  waiters: 0,
  newcomers: kinds.length,
  readers: readersIn(kinds).map((index) => index + 1),
  free: true,
  ...more,
})

/** The first holds the lock, the others are in line. */
const inLine = (kinds: string, more: Partial<LineConfiguration> = {}): LineConfiguration => ({
  ...plain,
  waiters: kinds.length - 1,
  readers: readersIn(kinds),
  ...more,
})

function readersIn(kinds: string): number[] {
  return Array.from(kinds, (kind, index) => (kind === 'r' ? index : -1)).filter((index) => index >= 0)
}

const ANY = { clocks: 'any', expiries: 2 } as const

/** Shared leases: `w` is a writer, `r` a reader. */
export const SHARED_LINES: Readonly<Record<string, LineConfiguration & Sized>> = {
  'w and r come by': { ...comeBy('wr'), size: 'small' },
  'w and r come by, a repeated command, two expiries': {
    ...comeBy('wr', { duplicates: 1, expiries: 2 }),
    size: 'small',
  },
  'w and r come by, a crash': { ...comeBy('wr', { crashes: 1 }), size: 'small' },
  'w and r come by, any clocks': { ...comeBy('wr', { ...ANY, calmEvery: 16 }), size: 'small' },
  'w and r come by, any clocks, a repeated command': { ...comeBy('wr', { ...ANY, duplicates: 1 }), ...LARGE },
  'w and r come by, five nodes': { ...comeBy('wr', { nodes: 5 }), size: 'small' },
  'r holds, w and r in line, five nodes': { ...inLine('rwr', { nodes: 5 }), ...LARGE },
  'w and r come by, five nodes, a crash': { ...comeBy('wr', { nodes: 5, crashes: 1 }), ...LARGE },
  'w and r come by, five nodes, a repeated command': { ...comeBy('wr', { nodes: 5, duplicates: 1 }), ...LARGE },
  'w, r and r come by': { ...comeBy('wrr'), ...LARGE },
  'w, w and r come by': { ...comeBy('wwr'), ...LARGE },
  'w holds, r and r in line': { ...inLine('wrr'), size: 'small' },
  'r holds, w and r in line': { ...inLine('rwr'), size: 'small' },
  'r holds, r and w in line': { ...inLine('rrw'), size: 'small' },
  'r holds, w in line, r comes by': { ...inLine('rw', { newcomers: 1, readers: [0, 2] }), size: 'small' },
  'r holds, w in line gives up, r in line': { ...inLine('rwr', { giveUps: 1 }), size: 'small' },
  'w holds, r in line, a lost claim': { ...inLine('wr', SWAP), size: 'small' },
  'r holds, r in line, a lost claim, a repeated and a late command': {
    ...inLine('rr', { ...SWAP, duplicates: 1, lates: 1 }),
    ...LARGE,
  },
  'w, r and r come by, two expiries': { ...comeBy('wrr', { expiries: 2 }), ...UNFINISHED },
  'w, r and r come by, any clocks': { ...comeBy('wrr', ANY), ...UNFINISHED },
  'w, r and r come by, a repeated command': { ...comeBy('wrr', { duplicates: 1 }), ...LARGE },
  'w, w and r come by, two expiries': { ...comeBy('wwr', { expiries: 2 }), ...UNFINISHED },
  'w, w and r come by, any clocks': { ...comeBy('wwr', ANY), ...UNFINISHED },
  'w, w and r come by, a crash': { ...comeBy('wwr', { crashes: 1 }), ...UNFINISHED },
  'r holds, w and r in line, a repeated and a late command': {
    ...inLine('rwr', { duplicates: 1, lates: 1 }),
    ...LARGE,
  },
  'r holds, w and r in line, two expiries': { ...inLine('rwr', { expiries: 2 }), ...LARGE },
  'r holds, w and r in line, a crash': { ...inLine('rwr', { crashes: 1 }), ...LARGE },
  'r holds, r and w in line, a crash': { ...inLine('rrw', { crashes: 1 }), ...LARGE },
  'w holds, r and r in line, a crash, two expiries': { ...inLine('wrr', { crashes: 1, expiries: 2 }), ...LARGE },
  'w holds, r and w in line, lost claims': { ...inLine('wrw', SWAP), ...LARGE },
  'r holds, w and r in line, lost claims': { ...inLine('rwr', SWAP), ...LARGE },
  'r holds, w and r in line, r comes by': { ...inLine('rwr', { newcomers: 1, readers: [0, 2, 3] }), ...LARGE },
}

/** Clients that look right and are not; each must be found. Wrong scripts are among the mutations of the gate. */
export const WRONG_LINES: Readonly<Record<string, LineConfiguration>> = {
  'counts offers as votes': { ...plain, wrong: 'offers are votes' },
  'releases after a lost claim, and only then comes to the line again': {
    ...plain,
    ...SWAP,
    wrong: 'release and enqueue apart',
  },
  'does not withdraw a lost claim': { ...plain, ...SWAP, wrong: 'a lost claim is not withdrawn' },
  'leaves what a lost hand-over has not come to': {
    ...plain,
    ...HEIR,
    waiters: 1,
    wrong: 'a hand-over leaves the old lock',
  },
  'takes the highest number for the token of a reader': { ...comeBy('wr', ANY), wrong: 'no second phase' },
}
