/** The callbacks of those who wait in this process for a resource to become free. */
export class Watchers {
  readonly #byResource = new Map<string, Set<() => void>>()

  /** How many resources are watched. */
  get size(): number {
    return this.#byResource.size
  }

  /** The resources that are watched. */
  names(): string[] {
    return [...this.#byResource.keys()]
  }

  /** Returns a function that ends the watch; calling it twice does no harm. */
  add(resources: readonly string[], freed: () => void): () => void {
    // A function of its own for each watch: the same callback may be handed in twice.
    const watcher = (): void => freed()
    for (const resource of resources) {
      const watchers = this.#byResource.get(resource)
      if (watchers === undefined) this.#byResource.set(resource, new Set([watcher]))
      else watchers.add(watcher)
    }
    return () => {
      for (const resource of resources) {
        const watchers = this.#byResource.get(resource)
        watchers?.delete(watcher)
        if (watchers?.size === 0) this.#byResource.delete(resource)
      }
    }
  }

  isWatched(resources: readonly string[]): boolean {
    return resources.some((resource) => this.#byResource.has(resource))
  }

  /** Calls everyone who watches this resource. Returns how many that are. */
  wake(resource: string): number {
    const watchers = this.#byResource.get(resource)
    if (watchers === undefined) return 0
    const count = watchers.size
    for (const watcher of watchers) watcher()
    return count
  }

  /** Calls everyone, once each. */
  wakeAll(): void {
    const all = new Set([...this.#byResource.values()].flatMap((watchers) => [...watchers]))
    for (const watcher of all) watcher()
  }

  /** Ends all watches without calling anyone. */
  clear(): void {
    this.#byResource.clear()
  }
}
