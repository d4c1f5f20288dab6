/** What shared leases need. A table of an earlier version lacks them. */
const ADDED = ['readers', 'wanted_until']

/** Whether there is a table, and whether it is a lease table of this version or of an earlier one. */
export type TableShape = 'none' | 'right' | 'earlier' | 'other'

/** `there`: the names of its columns, separated by commas; null where there is no table. */
export function tableShape(there: string | null | undefined, columns: readonly string[]): TableShape {
  if (there === null || there === undefined) return 'none'
  const lacking = lackingColumns(there, columns)
  if (lacking.length === 0) return 'right'
  return lacking.join() === ADDED.join() ? 'earlier' : 'other'
}

export function lackingColumns(there: string, columns: readonly string[]): readonly string[] {
  const names = there.toLowerCase().split(',')
  return columns.filter((column) => !names.includes(column))
}
