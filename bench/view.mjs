import { against, againstBest, kindOf, of } from './ratios.mjs'
import { Rounds } from './rounds.mjs'

/** The rates of a kept report that the documents and the chart show. */
const RATES = [
  { number: 1, table: 0, title: 'one at a time, one node' },
  { number: 2, table: 0, title: 'one at a time, five nodes' },
  { number: 9, table: 0, title: 'the first 200 sections of a process, one node' },
  { number: 9, table: 1, title: 'the first 200 sections of a process, five nodes' },
  { number: 3, table: 0, title: '64 in flight, one node' },
  { number: 3, table: 1, title: '64 in flight, five nodes' },
  { number: 4, table: 0, title: 'one at a time, five nodes, one of them frozen' },
  { number: 5, table: 0, title: '200 waiters in one process, one node' },
  { number: 5, table: 1, title: '200 waiters in one process, five nodes' },
  { number: 6, table: 0, title: '4 processes of 50 waiters, one node' },
  { number: 6, table: 1, title: '4 processes of 50 waiters, five nodes' },
]

/**
 * Every rate with what it is compared with, those where ringfence fares worst first. Reports of before the rounds were kept
 * have only the rates to compare.
 */
export function ratesWorstFirst(report) {
  const shown = RATES.map((which) => rateOf(report, which)).filter((rate) => rate !== undefined)
  return shown.toSorted((a, b) => worst(a) - worst(b))
}

function worst({ toBare, toBest }) {
  return Math.min(toBare ?? Infinity, toBest)
}

function rateOf(report, { number, table: index, title }) {
  const table = questionOf(report, number)?.tables[index]
  const ours = table && of(table.rows, 'ringfence')
  if (ours?.perSecond === undefined) return undefined
  const rounds = table.rounds && Rounds.from(table.rounds)
  const bare = table.rows.find(({ library }) => library.startsWith('bare'))
  // With waiters, the bare commands run without any, since they cannot wait; with a frozen node they don't run at all.
  const isAlike = bare.library === 'bare commands' && bare.perSecond !== undefined
  const peers = table.rows.filter(({ library }) => kindOf(library) === 'peer')
  const best = againstBest({ rows: table.rows, rounds })
  return {
    title,
    ours,
    bare,
    peers,
    best: of(table.rows, best.base),
    baseline: table.rows.find(({ library }) => kindOf(library) === 'baseline'),
    toBare: isAlike
      ? rounds === undefined
        ? ours.toBare
        : against({ rows: table.rows, rounds }, bare.library).value
      : undefined,
    toBest: best.value,
  }
}

export function questionOf(report, number) {
  return report.questions.find((question) => question.number === number)
}
