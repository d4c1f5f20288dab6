import type { Configuration } from './configuration.ts'
import type { Sized } from './size.ts'

const plain: Configuration = {
  nodes: 3,
  proposals: [1, 1],
  duplicates: 0,
  crash: 'none',
  clocks: 'any',
  quick: true,
  model: 'loose',
}

const exact: Configuration = { ...plain, model: 'exact' }
const three: Configuration = { ...plain, proposals: [1, 1, 1] }
const five: Configuration = { ...plain, nodes: 5 }

/** Its proposal keeps client 0 apart from the others, which are alike. */
const ticket: Configuration = { ...plain, proposals: [3, 1, 1], ticket: true }

const GOOD = { clocks: 'good' } as const
const REPEATED = { duplicates: 1 } as const
const CRASH = { crash: 'sit-out' } as const

/** What must hold. */
export const EXPLORATIONS: Readonly<Record<string, Configuration & Sized>> = {
  'two clients': { ...plain, size: 'small' },
  'two clients, message by message': { ...exact, size: 'small' },
  'two clients, long way of the scripts, proposals apart': { ...plain, quick: false, proposals: [1, 3], size: 'small' },
  'two clients, good clocks': { ...plain, ...GOOD, size: 'small' },
  'two clients, a repeated request': { ...plain, ...REPEATED, size: 'small' },
  'two clients, a crash': { ...plain, ...CRASH, size: 'small' },
  'two clients, good clocks, a crash': { ...plain, ...GOOD, ...CRASH, size: 'small' },
  'two clients, a repeated request, a crash': { ...plain, ...REPEATED, ...CRASH, size: 'small' },
  'two clients, good clocks, a repeated request, a crash': { ...plain, ...GOOD, ...REPEATED, ...CRASH, size: 'small' },
  'two clients, message by message, good clocks': { ...exact, ...GOOD, size: 'large' },
  'two clients, message by message, a repeated request': { ...exact, ...REPEATED, size: 'large' },
  'two clients, message by message, a crash': { ...exact, ...CRASH, size: 'large' },
  'three clients': { ...three, size: 'small' },
  'three clients, good clocks': { ...three, ...GOOD, size: 'small' },
  'three clients, a repeated request': { ...three, ...REPEATED, size: 'large' },
  'three clients, a crash': { ...three, ...CRASH, size: 'large' },
  'three clients, good clocks, a crash': { ...three, ...GOOD, ...CRASH, size: 'large' },
  'three clients, a repeated request, a crash': { ...three, ...REPEATED, ...CRASH, size: 'large' },
  'five nodes, two clients': { ...five, size: 'small' },
  'five nodes, two clients, good clocks': { ...five, ...GOOD, size: 'small' },
  'five nodes, two clients, a repeated request': { ...five, ...REPEATED, size: 'large' },
  'five nodes, two clients, a crash': { ...five, ...CRASH, size: 'large' },
  'five nodes, two clients, good clocks, a crash': { ...five, ...GOOD, ...CRASH, size: 'large' },
  'five nodes, two clients, a repeated request, a crash': { ...five, ...REPEATED, ...CRASH, size: 'large' },
  'two adopt': { ...ticket, size: 'small' },
  'two adopt, message by message': { ...ticket, model: 'exact', size: 'large' },
  'two adopt, good clocks': { ...ticket, ...GOOD, size: 'small' },
  'two adopt, good clocks, a repeated request': { ...ticket, ...GOOD, ...REPEATED, size: 'large' },
  'two adopt, good clocks, a crash': { ...ticket, ...GOOD, ...CRASH, size: 'small' },
  'two adopt, a repeated request, a crash': { ...ticket, ...REPEATED, ...CRASH, size: 'large' },
  'three adopt, good clocks, a crash': { ...ticket, ...GOOD, ...CRASH, proposals: [3, 1, 1, 1], size: 'unfinished' },
  'five nodes, three clients': { ...three, nodes: 5, size: 'unfinished' },
}

/** Of these it is checked in every state that loose clients can do what exact ones do. */
export const REFINEMENTS: Readonly<Record<string, Sized>> = {
  'two clients': { size: 'small' },
  'two clients, long way of the scripts, proposals apart': { size: 'small' },
  'two clients, good clocks': { size: 'small' },
  'two clients, a repeated request': { size: 'unfinished' },
  'two clients, a crash': { size: 'large' },
  'two clients, good clocks, a crash': { size: 'unfinished' },
  'two clients, a repeated request, a crash': { size: 'unfinished' },
  'two clients, good clocks, a repeated request, a crash': { size: 'unfinished' },
  'three clients': { size: 'unfinished' },
  'three clients, good clocks': { size: 'unfinished' },
  'five nodes, two clients': { size: 'unfinished' },
  'five nodes, two clients, good clocks': { size: 'unfinished' },
  'two adopt': { size: 'unfinished' },
  'two adopt, good clocks': { size: 'unfinished' },
  'two adopt, good clocks, a crash': { size: 'unfinished' },
}

/** Of these it is checked in every state that each node goes a way through the model of one node. */
export const PROJECTIONS: Readonly<Record<string, Sized>> = {
  'two clients': { size: 'small' },
  'two clients, message by message': { size: 'large' },
  'two clients, long way of the scripts, proposals apart': { size: 'small' },
  'two clients, good clocks': { size: 'small' },
  'two clients, a repeated request': { size: 'small' },
  'two clients, a crash': { size: 'small' },
  'two clients, good clocks, a crash': { size: 'small' },
  'two clients, a repeated request, a crash': { size: 'large' },
  'three clients': { size: 'large' },
  'three clients, good clocks': { size: 'large' },
  'five nodes, two clients': { size: 'large' },
  'five nodes, two clients, good clocks': { size: 'large' },
  'five nodes, three clients': { size: 'unfinished' },
  'two adopt': { size: 'small' },
  'two adopt, good clocks': { size: 'large' },
}

/** Ways to come back after a crash that look right and are not; each must be found. */
export const WRONG_RESTARTS: Readonly<Record<string, Configuration>> = {
  'votes at once after it forgot': { ...plain, crash: 'at once' },
  'sits out, but numbers from nothing': { ...plain, crash: 'late' },
  'numbers repaired, but votes at once': { ...plain, crash: 'numbers', clocks: 'good' },
}

/** A node with an old copy takes part in an adoption. Message by message it would take minutes to find. */
export const WRONG_ADOPTIONS: Readonly<Record<string, Configuration>> = {
  'hands over at once after it forgot that it had': { ...ticket, crash: 'copy', clocks: 'good' },
}
