/**
 * Who waits for what within this process, first come, first served. Only the first in line makes attempts on the
 * servers, so a thousand local waiters cost them no more than one. A waiter for several resources stands in all their
 * lines at once and is first when it is first in each; since it enters them in one step, two can't wait for each other.
 */
export class Queue<W extends { readonly resources: readonly string[]; first(): void }> {
  readonly #lines = new Map<string, Set<W>>()

  /** Calls `waiter.first()` when it is first in every line: maybe at once. */
  enter(waiter: W): void {
    for (const resource of waiter.resources) {
      const line = this.#lines.get(resource)
      if (line === undefined) this.#lines.set(resource, new Set([waiter]))
      else line.add(waiter)
    }
    if (this.#isFirst(waiter)) waiter.first()
  }

  leave(waiter: W): void {
    const followers = new Set<W>()
    for (const resource of waiter.resources) {
      const line = this.#lines.get(resource)
      if (line === undefined) continue
      const wasFirst = head(line) === waiter
      line.delete(waiter)
      if (line.size === 0) this.#lines.delete(resource)
      else if (wasFirst) followers.add(head(line)!)
    }
    for (const follower of followers) if (this.#isFirst(follower)) follower.first()
  }

  /** Those who are first in some line of these resources. */
  heads(resources: readonly string[]): W[] {
    const found = new Set<W>()
    for (const resource of resources) {
      const line = this.#lines.get(resource)
      if (line !== undefined) found.add(head(line)!)
    }
    return [...found]
  }

  *waiters(): Iterable<W> {
    const seen = new Set<W>()
    for (const line of this.#lines.values()) {
      for (const waiter of line) {
        if (!seen.has(waiter)) yield waiter
        seen.add(waiter)
      }
    }
  }

  get size(): number {
    return this.#lines.size
  }

  #isFirst(waiter: W): boolean {
    return waiter.resources.every((resource) => {
      const line = this.#lines.get(resource)
      return line !== undefined && head(line) === waiter
    })
  }
}

function head<W>(line: Set<W>): W | undefined {
  return line.values().next().value
}
