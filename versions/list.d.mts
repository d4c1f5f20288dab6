/** A row of the tables. */
interface Row {
  readonly id: string
}

export const frameworks: readonly Row[]
export const servers: readonly (Row & { readonly server: string; readonly version?: string })[]
export const drivers: readonly (Row & { readonly driver: string; readonly version: string })[]
