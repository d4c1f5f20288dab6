/** A figure as people read it. */
function shown(value, column) {
  if (value === undefined || value === null || Number.isNaN(value)) return '–'
  if (typeof value === 'string') return value
  if (column.percent) return `±${((value * 100) / 2).toFixed(0)} %`
  if (column.share) return `${(value * 100).toFixed(1)} %`
  if (column.ratio) return `${value.toFixed(value < 10 ? 2 : 1)}×`
  return value.toLocaleString('en', { minimumFractionDigits: column.digits, maximumFractionDigits: column.digits })
}

export function printTable({ title, columns, rows }) {
  if (title !== '') process.stdout.write(`  ${title}\n`)
  const cells = [columns.map((column) => column.title), ...rows.map((row) => columns.map((c) => shown(row[c.key], c)))]
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i].length)))
  for (const line of cells) {
    const padded = line.map((text, i) => (i === 0 ? text.padEnd(widths[i]) : text.padStart(widths[i])))
    process.stdout.write(`  ${padded.join('  ')}\n`)
  }
}

export function printTarget({ text, value, atLeast, atMost, reached }) {
  const goal = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`
  process.stdout.write(`  ${reached ? 'reached' : 'MISSED '}  ${value.toFixed(2)} ${text} (${goal})\n`)
}
