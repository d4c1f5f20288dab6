/** One question's answer as text. */
export function printQuestion({ number, title, tables, targets, seconds, load }) {
  print(`\n${number}. ${title}  (${seconds} s, load ${load.toFixed(1)})\n`)
  for (const table of tables) printTable(table)
  for (const target of targets) printTarget(target)
}

/** What was to be reached, all in one place. */
export function printSummary({ questions, node, redis, cpu, quick }) {
  const targets = questions.flatMap(({ number, targets }) => targets.map((target) => ({ number, ...target })))
  const reached = targets.filter((target) => target.reached).length
  print(`\n${reached} of ${targets.length} goals reached${quick ? ' (the short version: only a hint)' : ''}\n`)
  for (const target of targets) printTarget(target, `${target.number}. `)
  print(`Node ${node}, Redis ${redis}, ${cpu}, loopback\n`)
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

function isText({ key }) {
  return key === 'library' || key === 'note'
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

function printTarget({ text, value, atLeast, atMost, reached }, before = '') {
  const goal = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`
  print(`  ${reached ? '✓' : '✗'} ${before}${value.toFixed(2)} ${text} (${goal})\n`)
}

function print(text) {
  process.stdout.write(text)
}
