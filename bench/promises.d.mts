export function promisesOf(plan: {
  readonly library?: { readonly name: string; readonly from?: string }
  readonly ports: readonly number[]
  readonly client?: 'ioredis' | 'node-redis'
}): Promise<{ readonly section: number; readonly first: number; readonly using: number | undefined }>
