/** A map that remembers the latest names only: what was set longest ago is forgotten first. */
export class Latest<T> extends Map<string, T> {
  readonly #most: number

  constructor(most: number) {
    super()
    this.#most = most
  }

  override set(name: string, value: T): this {
    this.delete(name)
    super.set(name, value)
    if (this.size > this.#most) this.delete(this.keys().next().value!)
    return this
  }
}
