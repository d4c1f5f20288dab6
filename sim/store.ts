import type { History } from './history.ts'
import type { Link, Network } from './network.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'

/** Who writes, and under which token. */
export interface Writer {
  readonly owner: string
  readonly token: number
}

export type StoreKind = 'guarded' | 'unguarded'

interface Row {
  value: number
  fence: number
}

/**
 * What the lock protects, twice: a store that checks tokens and one that does not. Each resource has a counter that holders
 * read and write back one higher, which loses an update whenever two do it at once.
 */
export class Store {
  readonly #network: Network
  readonly #history: History
  readonly #rows = new Map<string, Row>()

  constructor(network: Network, history: History) {
    this.#network = network
    this.#history = history
  }

  /** Raises the fence, so that no older holder can write any more, and reads: undefined when the token itself is stale. */
  read(
    process: Process,
    random: Seeded,
    store: StoreKind,
    resource: string,
    writer: Writer,
  ): Promise<number | undefined> {
    return this.#visit(process, random, 'message', () => {
      const row = this.#row(store, resource)
      const accepted = this.#accepts(store, row, writer)
      this.#record('read', process, store, resource, writer, { base: row.value, value: row.value, accepted })
      return accepted ? row.value : undefined
    })
  }

  write(
    process: Process,
    random: Seeded,
    store: StoreKind,
    resource: string,
    writer: Writer,
    value: number,
  ): Promise<boolean> {
    return this.#visit(process, random, 'write', () => {
      const row = this.#row(store, resource)
      const accepted = this.#accepts(store, row, writer)
      this.#record('write', process, store, resource, writer, { base: row.value, value, accepted })
      if (accepted) row.value = value
      return accepted
    })
  }

  #row(store: StoreKind, resource: string): Row {
    const name = `${store} ${resource}`
    let row = this.#rows.get(name)
    if (row === undefined) {
      row = { value: 0, fence: 0 }
      this.#rows.set(name, row)
    }
    return row
  }

  #accepts(store: StoreKind, row: Row, { token }: Writer): boolean {
    if (store === 'unguarded') return true
    if (token < row.fence) return false
    row.fence = token
    return true
  }

  #record(
    kind: 'read' | 'write',
    process: Process,
    store: StoreKind,
    resource: string,
    { owner, token }: Writer,
    row: { base: number; value: number; accepted: boolean },
  ): void {
    const at = this.#network.time.nowMs
    this.#history.add({ at, kind, process: process.name, store, resource, owner, token, ...row })
  }

  /** There and back; what has left the process gets there, whatever becomes of the process. */
  #visit<T>(process: Process, random: Seeded, what: 'message' | 'write', visit: () => T): Promise<T> {
    const { time } = this.#network
    const link: Link = this.#network.link(process.name, 'store')
    return new Promise((resolve) => {
      time.at(process.leave(what) + this.#network.travelMs(random) + link.delayMs, () => {
        const result = visit()
        time.after(this.#network.travelMs(random), () => process.enter(() => resolve(result)))
      })
    })
  }
}
