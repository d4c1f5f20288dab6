import { Attempts } from './attempts.ts'
import { elapsedMs, instant } from './clock.ts'
import { Deadlines } from './deadlines.ts'
import type { Engine, Refusal } from './engine.ts'
import { nextCall } from './events.ts'
import { Fairness } from './fairness.ts'
import { Holdings } from './holdings.ts'
import type { Lease } from './lease.ts'
import { closedError, Lifetime } from './lifetime.ts'
import type { LeaseTerms, Settings, WaitTerms } from './options.ts'
import { Queue } from './queue.ts'
import { Waiter } from './waiter.ts'

/** The calls of `acquire` and `tryAcquire`, with read options, and the parts that they share. */
export class Calls {
  readonly engine: Engine
  readonly settings: Settings
  readonly attempts: Attempts
  readonly holdings: Holdings
  readonly fairness: Fairness
  readonly deadlines: Deadlines
  readonly queue = new Queue<Waiter>()
  readonly #lifetime = new Lifetime()

  constructor(engine: Engine, settings: Settings) {
    this.engine = engine
    this.settings = settings
    this.attempts = new Attempts(engine, settings, this.#lifetime)
    this.fairness = new Fairness(settings.clock, settings.random)
    this.deadlines = new Deadlines(settings.clock)
    const { attempts, queue, fairness } = this
    this.holdings = new Holdings(engine, settings, { lifetime: this.#lifetime, attempts, queue, fairness })
    if (settings.tell !== undefined) engine.observe?.(settings.tell)
  }

  /** One attempt, without waiting. */
  async tryAcquire(resources: readonly string[], terms: LeaseTerms): Promise<Lease | Refusal> {
    this.#lifetime.assertOpen(resources)
    const { clock, tell } = this.settings
    const began = instant(clock)
    const call = tell === undefined ? 0 : nextCall()
    tell?.({ type: 'asked', call, resources, waitMs: 0 })
    const { ttlMs, keepMs } = terms
    let lease: Lease | undefined
    const attempt = this.attempts.attempt({
      call,
      resources,
      ttlMs,
      keepMs,
      contended: false,
      isWanted: () => true,
      granted: (acquisition) => {
        lease = this.holdings.admit(acquisition, terms, elapsedMs(clock, began))
      },
    })
    const outcome = await (tell === undefined
      ? attempt
      : attempt.catch((cause: unknown) => {
          const reason = this.#lifetime.isClosed ? 'closed' : 'failed'
          tell({ type: 'denied', call, resources, reason, waitedMs: elapsedMs(clock, began), cause })
          throw cause
        }))
    if (outcome.kind === 'acquired') return lease!
    tell?.({ type: 'denied', call, resources, reason: 'held', waitedMs: elapsedMs(clock, began) })
    return outcome
  }

  acquire(resources: readonly string[], terms: WaitTerms): Promise<Lease> {
    this.#lifetime.assertOpen(resources)
    const waiter = new Waiter(resources, terms, this)
    this.queue.enter(waiter)
    return waiter.lease
  }

  /** Ends all waits, releases all leases (those of `once` keep their `atLeast`), closes the engine. */
  async close(): Promise<void> {
    this.#lifetime.close()
    for (const waiter of this.queue.waiters()) waiter.cancel(closedError(waiter.resources), 'closed')
    this.holdings.close()
    this.deadlines.close()
    await this.#lifetime.idle()
    await this.engine.close()
  }
}
