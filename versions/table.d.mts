export function pageWithTables(): string

/** Whether `npm test` runs with it. */
export function isOrdinary(row: { readonly id: string }): boolean
