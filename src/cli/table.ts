import { printable } from '../owner.ts'
import type { Output } from './output.ts'

/** Columns as wide as their widest cell, two spaces apart. */
export function table(cells: readonly (readonly string[])[]): string[] {
  // Before they are measured: what is escaped later would be wider than its column.
  const rows = cells.map((row) => row.map(printable))
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length))) ?? []
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  )
}

/** With the first row in bold. */
export function printTable(output: Output, cells: readonly (readonly string[])[]): void {
  const [head = '', ...lines] = table(cells)
  output.line({ style: 'bold', text: head })
  for (const text of lines) output.line(text)
}

/** Lines of at most `width`, broken at spaces; all after the first are indented. */
export function wrap(text: string, width: number, indent = ''): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = `${indent}${word}`
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
