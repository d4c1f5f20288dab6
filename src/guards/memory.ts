import { shown } from '../duration.ts'
import {
  fencedOrThrow,
  passes,
  GuardContext,
  StoreGuard,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'

/** The fences are in this process only: for tests, and for a store that one process owns. */
export interface MemoryGuard extends Guard {
  /**
   * Raises the fences of the lease and runs the work, with nothing in between: no other holder is let in before the work has
   * returned. So the work must not wait for anything: where it returns a promise, this rejects with a `TypeError`.
   */
  write<T>(lease: Fenced, work: () => T): Promise<T>
}

/** A guard whose fences are kept in a `Map`, by resource. Guards with the same map share their fences. */
export function memoryGuard(fences: Map<string, Fence> = new Map(), options: GuardOptions = {}): MemoryGuard {
  return new InProcessGuard(fences, options)
}

class InProcessGuard extends StoreGuard implements MemoryGuard {
  readonly #fences: Map<string, Fence>
  readonly #context: GuardContext

  constructor(fences: Map<string, Fence>, options: GuardOptions) {
    const context = new GuardContext('memory', options)
    super(context)
    if (!(fences instanceof Map)) {
      const hint = typeof fences === 'object' && fences !== null ? '; options are the second argument' : ''
      throw new TypeError(`fences: expected a Map, got ${shown(fences)}${hint}`)
    }
    this.#fences = fences
    this.#context = context
  }

  async write<T>(lease: Fenced, work: () => T): Promise<T> {
    const fenced = fencedOrThrow(lease)
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
    lease.assertHeld?.()
    this.#raise(fenced)
    const result = work()
    if (!(result instanceof Promise)) return result
    // It goes on, and nobody else would hear of its error.
    result.catch(() => undefined)
    throw new TypeError('work: expected a function that does not wait, got one that returned a promise')
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    this.#raise(lease, from)
  }

  /** All or none. */
  #raise(lease: Fenced, from?: string): void {
    const { resources, token, engine } = lease
    for (const resource of resources) {
      const seen = this.#fences.get(resource)
      if (seen !== undefined && !passes(lease, seen, from)) throw this.#context.refusal(lease, resource, seen)
    }
    for (const resource of resources) this.#fences.set(resource, { token, engine })
  }
}
