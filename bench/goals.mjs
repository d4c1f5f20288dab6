/**
 * What is to be reached, as data: ratios of one run. A goal is a floor, or with `atMost` a ceiling.
 *
 * @typedef {object} Goal
 * @property {string} id
 * @property {number} question
 * @property {string} text what the value is a ratio of
 * @property {number} goal
 * @property {number} [stretch]
 * @property {true} [atMost]
 */

/** @type {readonly Goal[]} */
export const GOALS = [
  { id: '1-bare', question: 1, text: 'of the bare commands', goal: 0.93, stretch: 1.03 },
  { id: '1-redlock', question: 1, text: 'of redlock 5 beta', goal: 1, stretch: 1.1 },
  { id: '1-semaphore', question: 1, text: 'of redis-semaphore', goal: 0.92, stretch: 1 },
  { id: '2-bare', question: 2, text: 'of the bare commands', goal: 1.2, stretch: 1.35 },
  { id: '2-peer', question: 2, text: 'of the best peer', goal: 1.05, stretch: 1.2 },
  { id: '3-one-bare', question: 3, text: 'one node: of the bare commands', goal: 1.6, stretch: 2 },
  { id: '3-one-peer', question: 3, text: 'one node: of the best peer', goal: 1.3, stretch: 1.5 },
  { id: '3-five-bare', question: 3, text: 'five nodes: of the bare commands', goal: 4, stretch: 6 },
  { id: '3-five-peer', question: 3, text: 'five nodes: of the best peer', goal: 3.5, stretch: 5 },
  { id: '4-healthy', question: 4, text: 'p50, to its own with all healthy', goal: 1.1, stretch: 1, atMost: true },
  { id: '4-peer', question: 4, text: 'rate, of the best peer', goal: 1, stretch: 1.2 },
  { id: '5-one', question: 5, text: 'one node: of the best peer', goal: 10, stretch: 15 },
  { id: '5-five', question: 5, text: 'five nodes: of the best peer', goal: 6, stretch: 10 },
  { id: '6-one', question: 6, text: 'one node: of the best tuned peer', goal: 3.5, stretch: 5 },
  { id: '6-five', question: 6, text: 'five nodes: of the best tuned peer', goal: 5, stretch: 8 },
  { id: '6-one-defaults', question: 6, text: 'one node: of the best peer with its defaults', goal: 5 },
  { id: '6-five-defaults', question: 6, text: 'five nodes: of the best peer with its defaults', goal: 10 },
  {
    id: '6-one-fair',
    question: 6,
    text: 'one node: busiest process to least busy',
    goal: 1.3,
    stretch: 1.1,
    atMost: true,
  },
  {
    id: '6-five-fair',
    question: 6,
    text: 'five nodes: busiest process to least busy',
    goal: 1.3,
    stretch: 1.1,
    atMost: true,
  },
  { id: '7-cpu', question: 7, text: "client CPU, to the baseline's", goal: 0.5, stretch: 0.25, atMost: true },
  { id: '9-one', question: 9, text: 'one node: of the bare commands', goal: 0.9, stretch: 1.1 },
  { id: '9-five', question: 9, text: 'five nodes: of the bare commands', goal: 1.1, stretch: 1.4 },
]

/**
 * The goals of a question with what came out.
 *
 * @param {number} question
 * @param {Record<string, { value: number, low?: number, high?: number, base?: string } | undefined>} outcomes by the goal's id;
 *   undefined where it was not measured
 */
export function judged(question, outcomes) {
  const goals = GOALS.filter((goal) => goal.question === question)
  const missing = goals.filter(({ id }) => !(id in outcomes))
  if (missing.length > 0)
    throw new Error(`question ${question} says nothing about ${missing.map(({ id }) => id).join(', ')}`)
  return goals.map((goal) => verdict(goal, outcomes[goal.id]))
}

/** @param {Goal} goal */
export function verdict(goal, outcome) {
  if (outcome === undefined) return { ...goal, verdict: 'not measured' }
  const { value, low, high, base, rounds } = outcome
  const passes = (bound) => bound !== undefined && (goal.atMost ? value <= bound : value >= bound)
  const verdict = passes(goal.stretch) ? 'stretch reached' : passes(goal.goal) ? 'reached' : 'not reached'
  return { ...goal, value, low, high, rounds, base, verdict }
}

/** @param {{ verdict: string }} goal */
export function isReached({ verdict }) {
  return verdict === 'reached' || verdict === 'stretch reached'
}
