interface Watched {
  /** The one function that the driver knows for this path, however often it is asked to watch it. */
  readonly fire: () => void
  readonly listeners: Set<() => void>
  /** The driver has it on its list, and puts it on the server's again after every reconnection. */
  armed: boolean
}

/**
 * Who wants to hear of which node. The driver can't take a watch back, so an armed one stays until it fires, for the next
 * one who is interested: a function of its own for each would pile up while one holder outlasts many who give up.
 */
export class Watches {
  readonly #watched = new Map<string, Watched>()

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
