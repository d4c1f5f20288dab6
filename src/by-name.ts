interface Cell<T> {
  value: T | undefined
}

/**
 * A map for what comes and goes with every lease. A plain Map that is added to and deleted from all the time grows a chain of
 * tables, through which V8 keeps what was deleted until its next full collection. Here that is an empty cell.
 */
export class ByName<T extends object> {
  readonly #cells = new Map<string, Cell<T>>()

  get size(): number {
    return this.#cells.size
  }

  get(name: string): T | undefined {
    return this.#cells.get(name)?.value
  }

  set(name: string, value: T): void {
    const cell = this.#cells.get(name)
    if (cell === undefined) this.#cells.set(name, { value })
    else cell.value = value
  }

  delete(name: string): void {
    const cell = this.#cells.get(name)
    if (cell === undefined) return
    cell.value = undefined
    this.#cells.delete(name)
  }

  *[Symbol.iterator](): Generator<[string, T]> {
    for (const [name, { value }] of this.#cells) yield [name, value!]
  }
}
