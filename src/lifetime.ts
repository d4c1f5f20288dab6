import { EngineError } from './errors.ts'

/** Whether these locks are open, and how many attempts and releases are under way: the engine is closed after the last of them. */
export class Lifetime {
  #closed = false
  #underWay = 0
  #whenIdle: (() => void) | undefined

  get isClosed(): boolean {
    return this.#closed
  }

  assertOpen(resources: readonly string[]): void {
    if (this.#closed) throw closedError(resources)
  }

  close(): void {
    this.#closed = true
  }

  /** Something is under way until `end` is called. */
  begin(): void {
    this.#underWay++
  }

  end(): void {
    if (--this.#underWay === 0) this.#whenIdle?.()
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    while (this.#underWay > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve))
  }
}

export function closedError(resources: readonly string[]): EngineError {
  return new EngineError('these locks are closed; for new ones call createLocks with a new engine', resources, {
    transient: false,
  })
}
