import { backOffMs } from '../../back-off.ts'
import { instant, sleep } from '../../clock.ts'
import type { LeaseRequest, QueuedGrant } from '../../engine.ts'
import { OtherSoftware } from '../../other-software.ts'
import { LineWait, type RedisQueuePlan } from './line-wait.ts'

/** How many resources' last turns are remembered, the latest. */
const MOST_TURNS = 1000
/** Where there is no line. */
const RACE = { firstMs: 50, mostMs: 1000 }

/** The waits of this process in the lines on the nodes. */
export class RedisQueue {
  readonly #plan: RedisQueuePlan
  readonly #otherSoftware: OtherSoftware
  /** When this process last released a resource. */
  readonly #turns = new Map<string, number>()

  constructor(plan: RedisQueuePlan) {
    this.#plan = plan
    this.#otherSoftware = new OtherSoftware(plan.clock, plan.random)
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal, newOwner?: () => string): Promise<QueuedGrant> {
    const label = request.owner.slice(request.owner.indexOf('@') + 1)
    const next = newOwner ?? (() => `${this.#plan.random.id()}@${label}`)
    const wait = new LineWait(this.#plan, request, next, this.#otherSoftware, this.#sinceMs(request))
    const grant = await wait.run(signal)
    return grant ?? this.#race(request, signal, next)
  }

  /**
   * From when a place counts: from the beginning of its caller's wait, also if a caller before it has given up the place. After
   * a turn of this process it counts from that turn, so that those who waited meanwhile come first.
   */
  #sinceMs({ resources, waitedMs = 0 }: LeaseRequest): number {
    const nowMs = this.#plan.clock.monotonicMs()
    return Math.min(nowMs, Math.max(nowMs - waitedMs, ...resources.map((name) => this.#turns.get(name) ?? -Infinity)))
  }

  /** This process releases these. Returns `passesOn`. */
  releasing(resources: readonly string[]): boolean {
    const nowMs = this.#plan.clock.monotonicMs()
    for (const name of resources) {
      this.#turns.delete(name)
      this.#turns.set(name, nowMs)
    }
    for (const oldest of this.#turns.keys()) {
      if (this.#turns.size <= MOST_TURNS) break
      this.#turns.delete(oldest)
    }
    return this.#passesOn(resources)
  }

  /**
   * Whether a release passes the lock on. Where other software waits as well, the lock is left free for a moment: such
   * software does not stand in line, and would never find it free.
   */
  #passesOn(resources: readonly string[]): boolean {
    return this.#otherSoftware.pauseMs(resources) === 0
  }

  /** This user may not use the lines, or a key of another type is in their place: whoever comes first after a release gets it. */
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
