import { ByName } from './by-name.ts'

interface Queued<W> {
  readonly resources: readonly string[]
  first(before?: W): void
  wake(delayMs: number): void
}

/**
 * Who waits for what within this process, first come, first served. Only the first in line makes attempts on the servers, so
 * a thousand waiters of a process cost them no more than one. A waiter for several resources is in the lines of all of them,
 * and is first when it is first in each line. It enters all lines in one step, so two waiters cannot wait for each other.
 */
export class Queue<W extends Queued<W>> {
  /** A waiter that is alone, as most are, is here without a set around it. */
  readonly #lines = new ByName<W | Set<W>>()
  readonly #alsoWake: ((resources: readonly string[], delayMs: number) => void) | undefined

  /** `alsoWake`: is called with what `wake` is called with. */
  constructor(alsoWake?: (resources: readonly string[], delayMs: number) => void) {
    this.#alsoWake = alsoWake
  }

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
    for (const follower of followers ?? []) if (this.#isFirst(follower)) follower.first(waiter)
  }

  /** The waiters that are first in a line of these resources. */
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

  /** One of the resources may be free. */
  wake(resources: readonly string[], delayMs: number): void {
    for (const waiter of this.heads(resources)) waiter.wake(delayMs)
    this.#alsoWake?.(resources, delayMs)
  }

  /** The waiter that is first in a line in which this one is further behind. */
  ahead(waiter: W): W | undefined {
    return this.heads(waiter.resources).find((head) => head !== waiter)
  }

  /** The waiter right behind one that is first in all of its lines, if it waits for the very same resources. */
  heir(waiter: W): W | undefined {
    let heir: W | undefined
    for (const resource of waiter.resources) {
      const line = this.#lines.get(resource)
      const [first, second] = line instanceof Set ? line : []
      if (first !== waiter || second === undefined || (heir ?? second) !== second) return undefined
      heir = second
    }
    return heir !== undefined && sameNames(heir.resources, waiter.resources) ? heir : undefined
  }

  /** All waiters. */
  waiters(): Set<W> {
    const all = new Set<W>()
    for (const [, line] of this.#lines) {
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

/** The first of a line that is not empty. */
function head<W>(line: W | Set<W>): W {
  return line instanceof Set ? line.values().next().value! : line
}

/** Both are sorted. */
export function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index])
}
