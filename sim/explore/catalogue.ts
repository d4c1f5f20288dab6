import type { Configuration } from './explore.ts'

const plain: Configuration = {
  nodes: 3,
  proposals: [1, 1],
  duplicates: 0,
  crash: 'none',
  clocks: 'any',
  quick: true,
  reduced: true,
}

const three: Configuration = { ...plain, proposals: [1, 1, 1] }
const five: Configuration = { ...plain, nodes: 5 }

/** What must hold. */
export const EXPLORATIONS: Readonly<Record<string, Configuration & { readonly size: 'small' | 'large' }>> = {
  'two clients': { ...plain, size: 'small' },
  'two clients, nothing left out': { ...plain, reduced: false, size: 'small' },
  'two clients, long way of the scripts, proposals apart': { ...plain, quick: false, proposals: [1, 3], size: 'small' },
  'two clients, good clocks, exclusion': { ...plain, clocks: 'good', size: 'small' },
  'two clients, a repeated request': { ...plain, duplicates: 1, size: 'large' },
  'two clients, a node forgets and sits out': { ...plain, crash: 'sit-out', size: 'large' },
  'two clients, good clocks, a node forgets and sits out': {
    ...plain,
    crash: 'sit-out',
    clocks: 'good',
    size: 'large',
  },
  'two clients, a repeated request, a node forgets and sits out': {
    ...plain,
    duplicates: 1,
    crash: 'sit-out',
    size: 'large',
  },
  'three clients': { ...three, size: 'large' },
  'three clients, a node forgets and sits out': { ...three, crash: 'sit-out', size: 'large' },
  'three clients, a repeated request': { ...three, duplicates: 1, size: 'large' },
  'five nodes, two clients': { ...five, size: 'large' },
  'five nodes, two clients, a node forgets and sits out': { ...five, crash: 'sit-out', size: 'large' },
  'five nodes, two clients, a repeated request': { ...five, duplicates: 1, size: 'large' },
}

/** Ways to come back after a crash that look right and are not; each must be found. */
export const WRONG_RESTARTS: Readonly<Record<string, Configuration>> = {
  'votes at once after it forgot': { ...plain, crash: 'at once' },
  'sits out, but numbers from nothing': { ...plain, crash: 'late' },
  'numbers repaired, but votes at once': { ...plain, crash: 'numbers', clocks: 'good' },
}
