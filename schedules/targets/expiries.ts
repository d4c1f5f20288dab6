/**
 * When the servers end what nobody has renewed, in the time of the schedule: as early as they may. They do it by the request that
 * is passed here, which is what a leader does when its own timer has run out.
 */
export class Expiries {
  readonly #ends = new Map<string, { ttlMs: number; atMs: number }>()
  readonly #end: (id: string) => Promise<unknown>
  nowMs = 0

  constructor(end: (id: string) => Promise<unknown>) {
    this.#end = end
  }

  begins(id: string, ttlMs: number): void {
    this.#ends.set(id, { ttlMs, atMs: this.nowMs + ttlMs })
  }

  /** `fromMs`: since when its time counts anew. */
  renewed(id: string, fromMs = this.nowMs): void {
    const one = this.#ends.get(id)
    if (one !== undefined) one.atMs = fromMs + one.ttlMs
  }

  gone(id: string): void {
    this.#ends.delete(id)
  }

  of(id: string): { readonly ttlMs: number; readonly leftMs: number } | undefined {
    const one = this.#ends.get(id)
    return one === undefined ? undefined : { ttlMs: one.ttlMs, leftMs: one.atMs - this.nowMs }
  }

  async pass(nowMs: number): Promise<void> {
    this.nowMs = nowMs
    for (const [id, { atMs }] of [...this.#ends].sort(([, one], [, other]) => one.atMs - other.atMs)) {
      if (atMs > nowMs) return
      this.#ends.delete(id)
      await this.#end(id)
    }
  }

  async clear(): Promise<void> {
    const ids = [...this.#ends.keys()]
    this.#ends.clear()
    for (const id of ids) await this.#end(id)
  }
}
