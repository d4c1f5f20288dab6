/**
 * Who waits for what within this process, first come, first served. Only the first in line makes attempts on the
 * servers, so a thousand local waiters cost them no more than one. A waiter for several resources stands in all their
 * lines at once and is first when it is first in each; since it enters them in one step, two can't wait for each other.
 */
export class Queue<W extends { readonly resources: readonly string[]; first(): void }> {
  /** One who waits alone, as most do, stands here without a line around. */
  readonly #lines = new Map<string, W | Set<W>>()

  /** Calls `waiter.first()` when it is first in every line: maybe at once. */
  enter(waiter: W): void {
    for (const resource of waiter.resources) {
      const line = this.#lines.get(resource)
      if (line === undefined) this.#lines.set(resource, waiter)
      else if (line instanceof Set) line.add(waiter)
      else this.#lines.set(resource, new Set([line, waiter]))
    }
    if (this.#isFirst(waiter)) waiter.first()
  }

  leave(waiter: W): void {
    let followers: Set<W> | undefined
    for (const resource of waiter.resources) {
      const line = this.#lines.get(resource)
      if (line === waiter) this.#lines.delete(resource)
      if (!(line instanceof Set)) continue
      const wasFirst = head(line) === waiter
      line.delete(waiter)
      if (line.size === 0) this.#lines.delete(resource)
      else if (wasFirst) (followers ??= new Set()).add(head(line))
    }
    for (const follower of followers ?? []) if (this.#isFirst(follower)) follower.first()
  }

  /** Those who are first in some line of these resources. */
  heads(resources: readonly string[]): W[] {
    const found: W[] = []
    for (const resource of resources) {
      const line = this.#lines.get(resource)
      if (line === undefined) continue
      const first = head(line)
      if (!found.includes(first)) found.push(first)
    }
    return found
  }

  /** Everyone in line. */
  waiters(): Set<W> {
    const all = new Set<W>()
    for (const line of this.#lines.values()) {
      for (const waiter of line instanceof Set ? line : [line]) all.add(waiter)
    }
    return all
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

/** Of a line that is not empty. */
function head<W>(line: W | Set<W>): W {
  return line instanceof Set ? line.values().next().value! : line
}
