interface WatchedZnode {
  /** The only function that the driver knows for this path, however often it is asked to watch it. */
  readonly fire: () => void
  readonly listeners: Set<() => void>
  /** The driver has registered it, and registers it again on the server after every reconnection. */
  armed: boolean
}

/**
 * The listeners of each watched znode. The driver cannot end a watch, so an armed watch stays until it fires and serves the
 * next listener, too. With one watch for each listener they would pile up while one holder outlasts many waiters.
 */
export class ZnodeWatches {
  readonly #watched = new Map<string, WatchedZnode>()

  add(path: string, changed: () => void): { readonly fire: () => void; armed(): void } {
    let watched = this.#watched.get(path)
    if (watched === undefined) {
      watched = { fire: () => this.#fired(path), listeners: new Set(), armed: false }
      this.#watched.set(path, watched)
    }
    watched.listeners.add(changed)
    const { fire } = watched
    return {
      fire,
      armed: () => {
        watched.armed = true
      },
    }
  }

  remove(path: string, changed: () => void): void {
    const watched = this.#watched.get(path)
    watched?.listeners.delete(changed)
    if (watched?.armed === false && watched.listeners.size === 0) this.#watched.delete(path)
  }

  #fired(path: string): void {
    const watched = this.#watched.get(path)
    this.#watched.delete(path)
    for (const changed of watched?.listeners ?? []) changed()
  }
}
