import { exploreAll, type Explored, type Limits } from '../explore.ts'
import { LineModel } from './model.ts'
import { LineFingerprint, type LineConfiguration } from './state.ts'

const plain: LineConfiguration = {
  nodes: 3,
  waiters: 2,
  owners: 1,
  newcomer: false,
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
const LARGE = { calmEvery: 16, size: 'large' } as const

export function exploreLine(configuration: LineConfiguration, limits: Limits = {}): Explored {
  const model = new LineModel(configuration)
  return exploreAll(model, new LineFingerprint(model.shape), limits)
}

/** A lock that is held, and its line. The small ones take seconds. */
export const LINES: Readonly<Record<string, LineConfiguration & { readonly size: 'small' | 'large' }>> = {
  'a line of two': { ...plain, size: 'small' },
  'a line of two that forms': { ...plain, inLine: false, size: 'small' },
  'a line of two, a repeated command': { ...plain, duplicates: 1, size: 'small' },
  'a line of two, a late command': { ...plain, lates: 1, size: 'small' },
  'a line of two, one gives up': { ...plain, giveUps: 1, size: 'small' },
  'a line of two, a crash': { ...plain, crashes: 1, size: 'small' },
  'a line of two, an expiry': { ...plain, expiries: 1, size: 'small' },
  'a line of one, a lost claim': { ...ALONE, size: 'small' },
  'a line of one, a lost claim, a repeated and a late command': { ...ALONE, duplicates: 1, lates: 1, size: 'small' },
  'a line of one, a newcomer': { ...plain, waiters: 1, newcomer: true, size: 'small' },
  'a line of two, two expiries': { ...plain, expiries: 2, ...LARGE },
  'a line of two, a newcomer': { ...plain, newcomer: true, ...LARGE },
  'a line of two that forms, a crash': { ...plain, inLine: false, crashes: 1, ...LARGE },
  'a line of two, a holder that ends, two expiries': { ...plain, deaths: 1, expiries: 2, ...LARGE },
  'a line of two, a repeated and a late command, two expiries, a crash': {
    ...plain,
    duplicates: 1,
    lates: 1,
    expiries: 2,
    crashes: 1,
    ...LARGE,
  },
  'a line of one, a lost claim, two expiries, a crash': { ...ALONE, expiries: 2, crashes: 1, ...LARGE },
  'a line of two, lost claims': { ...plain, ...SWAP, ...LARGE },
  'a line of two, lost claims, a repeated command': { ...plain, ...SWAP, duplicates: 1, ...LARGE },
  'a line of two, lost claims, a late command': { ...plain, ...SWAP, lates: 1, ...LARGE },
  'a line of two, lost claims, two expiries': { ...plain, ...SWAP, expiries: 2, ...LARGE },
  'a line of two, lost claims, a crash': { ...plain, ...SWAP, crashes: 1, ...LARGE },
  'a line of three that forms': { ...plain, waiters: 3, inLine: false, ...LARGE },
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
}
