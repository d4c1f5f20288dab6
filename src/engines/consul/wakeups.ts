import { setMaxListeners } from 'node:events'
import { backOffMs } from '../../back-off.ts'
import { sleep } from '../../clock.ts'
import type { Watch } from '../../engine.ts'
import type { ConsulPlan } from './engine.ts'

/** How long a query may stay unanswered when nothing changes. A server that hangs is noticed after this time. */
const WAIT_MS = 5000
/** Each watch holds a connection, and a server takes 200 from one machine. Beyond this number we poll. */
const MOST_WATCHED_KEYS = 64
/** Between two tries while the servers do not answer. */
const RETRY = { firstMs: 100, mostMs: 1000 }

/** Blocking queries: Consul answers them when the key has changed. */
export class ConsulWakeups {
  readonly #plan: ConsulPlan
  readonly #open = new Set<AbortController>()
  #keys = 0

  constructor(plan: ConsulPlan) {
    this.#plan = plan
  }

  open(keys: readonly string[], freed: () => void): Watch {
    if (this.#keys + keys.length > MOST_WATCHED_KEYS) return { armed: Promise.resolve(false), close: () => undefined }
    const controller = new AbortController()
    // It has one listener for each key, which Node would take for a leak.
    setMaxListeners(0, controller.signal)
    this.#open.add(controller)
    this.#keys += keys.length
    const armed = Promise.all(keys.map((key) => this.#follow(key, freed, controller.signal)))
    return {
      armed: armed.then((each) => each.every(Boolean)),
      close: () => {
        if (!this.#open.delete(controller)) return
        this.#keys -= keys.length
        controller.abort()
      },
    }
  }

  close(): void {
    for (const controller of this.#open) controller.abort()
    this.#open.clear()
  }

  /** Resolves to true as soon as no later change can be missed. */
  async #follow(key: string, freed: () => void, signal: AbortSignal): Promise<boolean> {
    try {
      const { index } = await this.#ask(key, 0n, signal)
      // Never rejects.
      void this.#listen(key, index, freed, signal)
      return true
    } catch {
      return false
    }
  }

  async #listen(key: string, from: bigint, freed: () => void, signal: AbortSignal): Promise<void> {
    let index = from
    let failures = 0
    while (!signal.aborted) {
      try {
        const seen = await this.#ask(key, index, signal)
        failures = 0
        if (seen.index === index) continue
        // An index that went back is that of a cluster that was restored: the old one is worth nothing.
        index = seen.index < index ? 0n : seen.index
        // Even if it was gone the last time: it may have been taken and given back in between.
        if (!seen.there && !signal.aborted) freed()
      } catch {
        if (signal.aborted) return
        // We may have missed a release.
        if (failures === 0) freed()
        index = 0n
        await sleep(this.#plan.clock, backOffMs(this.#plan.random, RETRY, failures++), signal)
      }
    }
  }

  #ask(key: string, index: bigint, signal: AbortSignal): Promise<{ readonly index: bigint; readonly there: boolean }> {
    const timeoutMs = this.#plan.timeoutMs(WAIT_MS)
    return this.#plan.client.changed(key, { index, waitMs: index === 0n ? 1 : WAIT_MS, timeoutMs, signal })
  }
}
