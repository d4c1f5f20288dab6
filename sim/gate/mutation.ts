/**
 * A bug, put back by changing the compiled code of a copy, or the sources of one. `find` must occur exactly once, so that a mutation that no longer
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
    | 'test'
  /** Where it is to be caught by a test: its file, and the title of the test or a part of it. Then the sources are changed, not the compiled code. */
  readonly test?: { readonly file: string; readonly title: string }
}

export function mutation(name: string, from: string, by: Mutation['by'], file: string, ...pairs: string[]): Mutation {
  const changes = Array.from({ length: pairs.length / 2 }, (_, at) => ({
    find: pairs[2 * at]!,
    replace: pairs[2 * at + 1]!,
  }))
  return { name, from, by, file, changes }
}

/** A bug in the sources, which this test is to catch. */
export function seenByTest(
  name: string,
  from: string,
  [test, title]: readonly [file: string, title: string],
  file: string,
  ...pairs: string[]
): Mutation {
  return { ...mutation(name, from, 'test', file, ...pairs), test: { file: test, title } }
}

/** The text of the file with the bug in it. */
export function withBug(text: string, { name, file, changes }: Mutation): string {
  let changed = text
  for (const { find, replace } of changes) {
    const count = changed.split(find).length - 1
    if (count !== 1) throw new Error(`${name}: found ${count} times in ${file}, expected once: ${find}`)
    changed = changed.replace(find, () => replace)
  }
  return changed
}
