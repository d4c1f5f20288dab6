import type { Sized } from '../size.ts'
import type { OneNodeConfiguration } from './model.ts'

const one = (index: number): readonly number[] => [index]
const both = [0, 1]
const two: OneNodeConfiguration = {
  wants: [one(0), one(0)],
  most: 5,
  clocks: 'any',
  handOver: true,
  crash: 'none',
}
const three: OneNodeConfiguration = { ...two, wants: [one(0), one(0), one(0)] }
const names: OneNodeConfiguration = { ...two, wants: [both, one(1)], most: 4 }

const GOOD = { clocks: 'good' } as const
const CRASH = { crash: 'sit-out' } as const

export const ONE_NODE: Readonly<Record<string, OneNodeConfiguration & Sized>> = {
  'three clients, numbers to 6, good clocks, crashes': { ...three, ...GOOD, ...CRASH, most: 6, size: 'small' },
  'three clients, crashes': { ...three, ...CRASH, size: 'small' },
  'two names, two clients that want both, crashes': { ...names, ...CRASH, wants: [both, both], size: 'small' },
  'two names, a client that wants both, good clocks, crashes': { ...names, ...GOOD, ...CRASH, size: 'small' },
  'three clients, numbers to 8': { ...three, most: 8, size: 'large' },
  'three clients, numbers to 8, good clocks, crashes': { ...three, ...GOOD, ...CRASH, most: 8, size: 'large' },
  'three clients, numbers to 6, crashes': { ...three, ...CRASH, most: 6, size: 'large' },
  'four clients, numbers to 6': { ...three, wants: [one(0), one(0), one(0), one(0)], most: 6, size: 'large' },
  'four clients, numbers to 6, good clocks, crashes': {
    ...three,
    ...GOOD,
    ...CRASH,
    wants: [one(0), one(0), one(0), one(0)],
    most: 6,
    size: 'large',
  },
  'two names, clients that want both, the first, the second': {
    ...names,
    wants: [both, one(0), one(1)],
    size: 'large',
  },
  'two names, clients that want both, the first, the second, good clocks, crashes': {
    ...names,
    ...GOOD,
    ...CRASH,
    wants: [both, one(0), one(1)],
    size: 'large',
  },
  'two names, two clients that want both, one that wants the first': {
    ...names,
    wants: [both, both, one(0)],
    size: 'large',
  },
  'three names, each client wants two, numbers to 3, good clocks, crashes': {
    ...names,
    ...GOOD,
    ...CRASH,
    wants: [
      [0, 1],
      [1, 2],
      [0, 2],
    ],
    most: 3,
    size: 'large',
  },
}

/** Scripts, and nodes, that look right and are not; each must be found. */
export const WRONG_NODES: Readonly<Record<string, OneNodeConfiguration>> = {
  'confirms a number that its counter is above': {
    ...two,
    change: instead('if highest > tonumber(ARGV[2]) then return {2, text(highest)} end', ''),
  },
  'lowers its counter by a release': { ...two, change: instead('if not f or f < tonumber(t) then', 'if true then') },
  'numbers a hand-over without a look at its counter': {
    ...two,
    change: instead("redis.call('set', KEYS[2], p, 'get', 'px', ARGV[6])", 'false'),
  },
  'numbers two names by the counter of the first': {
    ...names,
    change: instead(
      'highest = math.max(highest, number(KEYS[i + 1]))\n  local held',
      'if i == 1 then highest = number(KEYS[2]) end\n  local held',
    ),
  },
  'grants both names where one is held': {
    ...names,
    ...GOOD,
    change: instead('if holder then return', 'if holder and #KEYS == 2 then return'),
  },
  'confirms two names by the owner of the first': {
    ...names,
    change: instead(
      "if redis.call('get', KEYS[i]) ~= ARGV[1] then return {0",
      "if redis.call('get', KEYS[1]) ~= ARGV[1] then return {0",
    ),
  },
  'votes at once after it forgot': { ...two, ...GOOD, crash: 'at once' },
  'sits out, but numbers from nothing': { ...two, crash: 'late' },
}

function instead(find: string, replace: string): (text: string) => string {
  return (text) => text.replaceAll(find, () => replace)
}
