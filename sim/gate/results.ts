import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { MUTATIONS } from './mutations.ts'

/** Of the checkout that the gate is run in: the code that runs is a copy. */
const RESULTS = path.resolve('sim/gate/results.json')
const PAGE = path.resolve('docs/testing/gate.md')

/** What a trial of the whole gate came to, at the last commit at which it was kept. */
export interface Result {
  readonly bug: string
  readonly caught: boolean
  readonly how: string
  readonly seconds: number
  readonly date: string
  readonly commit: string
}

export function kept(): readonly Result[] {
  return existsSync(RESULTS) ? (JSON.parse(readFileSync(RESULTS, 'utf8')) as Result[]) : []
}

/** Replaces what was known of the bug, and forgets bugs that have left the gate. Writes the table of the page, too. */
export function keep(result: Result): void {
  const results = [...kept().filter(({ bug }) => bug !== result.bug), result]
  const inOrder = MUTATIONS.flatMap(({ name }) => results.find(({ bug }) => bug === name) ?? [])
  writeFileSync(RESULTS, `${JSON.stringify(inOrder, null, 2)}\n`)
  writeFileSync(PAGE, pageWithTable())
}

/** The page as it has to be. */
export function pageWithTable(): string {
  const [begin, end] = ['<!-- gate -->', '<!-- end of gate -->']
  const text = readFileSync(PAGE, 'utf8')
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin} and then ${end}, found no such pair`)
  return `${text.slice(0, from)}${begin}\n\n${summary()}\n\n${table()}\n\n${text.slice(to)}`
}

/** The commit of most of the results, the others by their own, and those that were not tried. */
function summary(): string {
  const results = kept()
  const sentences = commitsOf(results).map((commit) => {
    const alike = results.filter((result) => result.commit === commit)
    const dates = [...new Set(alike.map(({ date }) => date))].sort()
    const caught = alike.filter((result) => result.caught).length
    return `At commit ${commit}, ${dates.join(' and ')}: ${caught} of ${alike.length} caught.`
  })
  const untried = MUTATIONS.length - results.length
  const rest =
    untried === 0 ? [] : [`${untried} of the ${MUTATIONS.length} have not been tried by a run that was kept.`]
  return [...sentences, ...rest].join(' ')
}

/** The one with most results first. */
function commitsOf(results: readonly Result[]): readonly string[] {
  const count = (commit: string): number => results.filter((result) => result.commit === commit).length
  return [...new Set(results.map(({ commit }) => commit))].sort((a, b) => count(b) - count(a))
}

function table(): string {
  const results = kept()
  const [usual] = commitsOf(results)
  const rows = MUTATIONS.map(({ name, from }) => {
    const result = results.find(({ bug }) => bug === name)
    if (result === undefined) return [name, from, 'not tried']
    const at = result.commit === usual ? '' : `, at ${result.commit}`
    return [name, from, `${result.caught ? '' : '**survives**: '}${result.how}${at}`]
  })
  return [['bug', 'known from', 'caught by'], ['---', '---', '---'], ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n')
}
