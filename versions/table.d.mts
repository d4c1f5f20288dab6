export function pageWithTables(): string
