import { backOffMs } from '../../back-off.ts'
import { instant, sleep } from '../../clock.ts'
import type { LeaseRequest, QueuedGrant } from '../../engine.ts'
import { OtherSoftware } from '../../other-software.ts'
import { OwnTurns } from '../shared/own-turns.ts'
import { LineWait, type RedisQueuePlan } from './line-wait.ts'

/** Where there is no line. */
const RACE = { firstMs: 50, mostMs: 1000 }

/** The waits of this process in the lines on the nodes. */
export class RedisQueue {
  readonly #plan: RedisQueuePlan
  readonly #otherSoftware: OtherSoftware
  readonly #turns: OwnTurns

  constructor(plan: RedisQueuePlan) {
    this.#plan = plan
    this.#otherSoftware = new OtherSoftware(plan.clock, plan.random)
    this.#turns = new OwnTurns(() => plan.clock.monotonicMs())
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal, newOwner?: () => string): Promise<QueuedGrant> {
    const label = request.owner.slice(request.owner.indexOf('@') + 1)
    const next = newOwner ?? (() => `${this.#plan.random.id()}@${label}`)
    const wait = new LineWait(this.#plan, request, next, this.#otherSoftware, this.#turns.sinceMs(request))
    const grant = await wait.run(signal)
    return grant ?? this.#race(request, signal, next)
  }

  /**
   * This process releases these. Returns whether the release passes the lock on. Where other software waits as well, the lock is left
   * free for a moment: such software does not stand in line, and would never find it free.
   */
  releasing(resources: readonly string[]): boolean {
    this.#turns.releasing(resources)
    return this.#otherSoftware.pauseMs(resources) === 0
  }

  /** This user may not use the lines, or a key of another type is in their place: the first that asks after a release gets it. */
  async #race(request: LeaseRequest, signal: AbortSignal, newOwner: () => string): Promise<QueuedGrant> {
    const { clock, random, wakeups } = this.#plan
    let wake = new AbortController()
    const watch = wakeups.watch(this.#plan.keys(request.resources).channels, () => wake.abort())
    try {
      for (let polls = 0; ; polls++) {
        const stop = (): void => wake.abort()
        signal.addEventListener('abort', stop)
        await sleep(clock, backOffMs(random, RACE, polls), wake.signal)
        signal.removeEventListener('abort', stop)
        signal.throwIfAborted()
        wake = new AbortController()
        const since = instant(clock)
        const owner = newOwner()
        const outcome = await this.#plan.acquire({ ...request, owner })
        if (outcome.kind === 'granted') return { ...outcome, owner, since }
      }
    } finally {
      watch.close()
    }
  }
}
