/**
 * A bug, put back by changing the compiled code of a copy. `find` must occur exactly once, so that a mutation that no longer
 * fits the code fails instead of passing for caught.
 */
export interface Mutation {
  readonly name: string
  /** Where it is known from: a number of the list of peers' bugs, a wrong variant of the protocol, or our own history. */
  readonly from: string
  readonly file: string
  readonly changes: readonly { readonly find: string; readonly replace: string }[]
  /** By what it is to be caught. */
  readonly by:
    | 'exploration'
    | 'line'
    | 'readers'
    | 'admission'
    | 'seeds'
    | 'kinds'
    | 'objects'
    | 'ioredis'
    | 'subscriptions'
    | 'subscriptions of node-redis'
}

export function mutation(name: string, from: string, by: Mutation['by'], file: string, ...pairs: string[]): Mutation {
  const changes = Array.from({ length: pairs.length / 2 }, (_, at) => ({
    find: pairs[2 * at]!,
    replace: pairs[2 * at + 1]!,
  }))
  return { name, from, by, file, changes }
}
