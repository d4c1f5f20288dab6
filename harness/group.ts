/** Servers that belong together and are stopped together. */
export interface Group<T> extends AsyncDisposable {
  nodes: T[]
  stop: () => Promise<void>
}

interface Stoppable {
  stop: () => Promise<void>
}

/** Starts all at once. When one fails, those that did start are stopped before the error is thrown. */
export async function startGroup<T extends Stoppable>(starts: readonly (() => Promise<T>)[]): Promise<Group<T>> {
  const outcomes = await Promise.allSettled(starts.map((start) => start()))
  const nodes = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []))
  const group = groupOf(nodes)
  const failed = outcomes.find((outcome) => outcome.status === 'rejected')
  if (failed !== undefined) {
    await group.stop()
    throw failed.reason
  }
  return group
}

export function groupOf<T extends Stoppable>(nodes: T[]): Group<T> {
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.stop()))
  }
  return { nodes, stop, [Symbol.asyncDispose]: stop }
}
