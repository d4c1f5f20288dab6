import { setMaxListeners } from 'node:events'
import { sleep, type Clock } from '../../clock.ts'
import type { Watch } from '../../engine.ts'
import type { Random } from '../../random.ts'
import type { ConsulClient } from './client.ts'

interface WatchPlan {
  readonly client: ConsulClient
  readonly clock: Clock
  readonly random: Random
  readonly timeoutMs: (ttlMs: number) => number
}

/** How long a question may stay unanswered when nothing changes: as long as a server may be deaf without our notice. */
const WAIT_MS = 5000
/** Each holds a connection, of which a server takes 200 from one machine. Beyond that we poll. */
const MOST_WATCHED_KEYS = 64
/** Between two tries while the servers don't answer: up to so long, growing. */
const LONGEST_PAUSE_MS = 1000

/** Blocking queries: a question that is answered when the key has changed. */
export class Watches {
  readonly #plan: WatchPlan
  readonly #open = new Set<AbortController>()
  #keys = 0

  constructor(plan: WatchPlan) {
    this.#plan = plan
  }

  open(keys: readonly string[], freed: () => void): Watch {
    if (this.#keys + keys.length > MOST_WATCHED_KEYS) return { armed: Promise.resolve(false), close: () => undefined }
    const controller = new AbortController()
    // As many listen to it as there are keys, which Node would take for a leak.
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

  /** Resolves with true as soon as no later change can be missed. */
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
        // Numbers that went back are those of a cluster that was restored: what they said is worth nothing.
        index = seen.index < index ? 0n : seen.index
        // Also if it was gone the last time: it may have been taken and given back in between.
        if (!seen.there && !signal.aborted) freed()
      } catch {
        if (signal.aborted) return
        // A release may have gone by unheard.
        if (failures === 0) freed()
        index = 0n
        const mostMs = Math.min(100 * 2 ** Math.min(failures++, 10), LONGEST_PAUSE_MS)
        await sleep(this.#plan.clock, mostMs * (0.5 + 0.5 * this.#plan.random.fraction()), signal)
      }
    }
  }

  #ask(key: string, index: bigint, signal: AbortSignal): Promise<{ readonly index: bigint; readonly there: boolean }> {
    const timeoutMs = this.#plan.timeoutMs(WAIT_MS)
    return this.#plan.client.changed(key, { index, waitMs: index === 0n ? 1 : WAIT_MS, timeoutMs, signal })
  }
}
