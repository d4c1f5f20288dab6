/** A row of the tables. */
interface Row {
  readonly id: string
}

export const servers: readonly Row[]
export const drivers: readonly (Row & { readonly driver: string; readonly version: string })[]
