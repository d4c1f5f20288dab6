import { isReached } from './goals.mjs'

/** One question's answer as text. */
export function printQuestion({ number, title, tables, goals, seconds, load }) {
  print(`\n${number}. ${title}  (${seconds} s, load ${load.toFixed(1)})\n`)
  for (const table of tables) if (table.rows.length > 0) printTable(table)
  for (const goal of goals) print(`  ${mark(goal)} ${goalText(goal)}\n`)
}

/** What was to be reached, all in one place. */
export function printSummary({ questions, node, redis, cpu, quick }) {
  const goals = questions.flatMap((question) => question.goals)
  const reached = goals.filter(isReached)
  const stretched = reached.filter(({ verdict }) => verdict === 'stretch reached')
  print(`\n${reached.length} of ${goals.length} goals reached, ${stretched.length} of them with the stretch goal`)
  print(`${quick ? ' (the short version: only a hint)' : ''}\n`)
  const columns = ['', 'question', 'measured', 'goal', 'stretch', 'verdict'].map((title, i) => ({
    key: i,
    title,
    text: true,
  }))
  const rows = goals.map((goal) => {
    const bound = (value) => (value === undefined ? '' : `${goal.atMost ? '≤' : '≥'} ${value}`)
    return [
      `${mark(goal)} ${goal.question}.`,
      goal.text,
      measured(goal),
      bound(goal.goal),
      bound(goal.stretch),
      goal.verdict,
    ]
  })
  if (rows.length > 0) printTable({ title: '', columns, rows })
  print(`Node ${node}, Redis ${redis}, ${cpu}, loopback\n`)
}

/** The file of results: a line for every row of a table and for every round. */
export function asJson(report) {
  const lines = []
  const short = JSON.stringify(
    report,
    (key, value) => {
      if (key !== 'columns' && key !== 'rows' && key !== 'goals') return value
      const all = value.map((each) => JSON.stringify(each))
      lines.push(key === 'columns' || all.length === 0 ? `[${all.join(', ')}]` : `[\n${all.join(',\n')}\n]`)
      return `line ${lines.length - 1}`
    },
    1,
  )
  return `${short.replaceAll(/"line (\d+)"/g, (_, index) => lines[Number(index)])}\n`
}

function mark(goal) {
  return goal.verdict === 'not measured' ? '–' : isReached(goal) ? '✓' : '✗'
}

function goalText(goal) {
  const bound = `${goal.atMost ? 'at most' : 'at least'} ${goal.goal}`
  const stretch = goal.stretch === undefined ? '' : `, stretch ${goal.stretch}`
  return `${measured(goal)} ${goal.text} (${bound}${stretch}): ${goal.verdict}`
}

/** The value, between which bounds it lies, and what it is compared with where that was found out by measuring. */
function measured({ value, low, high, base, text }) {
  if (value === undefined) return '–'
  const bounds = low === undefined ? '' : ` [${low.toFixed(2)}–${high.toFixed(2)}]`
  const of = base !== undefined && /best/.test(text) ? ` ${base}` : ''
  return `${value.toFixed(2)}${bounds}${of}`
}

function printTable({ title, columns, rows }) {
  if (title !== '') print(`  ${title}\n`)
  const used = columns.filter(({ key }) => rows.some((row) => row[key] !== undefined))
  const cells = [used.map((column) => column.title), ...rows.map((row) => used.map((column) => cell(row, column)))]
  const widths = used.map((_, i) => Math.max(...cells.map((line) => line[i].length)))
  for (const line of cells) {
    const padded = line.map((text, i) => (isText(used[i]) ? text.padEnd(widths[i]) : text.padStart(widths[i])))
    print(`  ${padded.join('  ').trimEnd()}\n`)
  }
}

function isText({ key, text }) {
  return text || key === 'library' || key === 'note'
}

/** A figure as people read it. */
function cell(row, column) {
  const value = row[column.key]
  if (isText(column)) return value ?? ''
  if (value === undefined || value === null || Number.isNaN(value)) return '–'
  if (column.spread) return `±${((value * 100) / 2).toFixed(0)} %`
  if (column.share) return `${(value * 100).toFixed(1)} %`
  if (column.ratio) return `${value.toFixed(value < 10 ? 2 : 1)}×`
  return value.toLocaleString('en', { minimumFractionDigits: column.digits, maximumFractionDigits: column.digits })
}

function print(text) {
  process.stdout.write(text)
}
