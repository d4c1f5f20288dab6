export const drivers: readonly { readonly driver: string; readonly version: string }[]
