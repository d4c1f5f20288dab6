import { EngineError, HeldError, LeaseLostError, WaitTimeoutError } from '../src/errors.ts'
import type { LockEvent } from '../src/events.ts'
import { sleep } from '../src/clock.ts'
import type { Lease } from '../src/lease.ts'
import type { Locks } from '../src/locks.ts'
import type { History } from './history.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import type { Store } from './store.ts'

export interface Terms {
  readonly resources: readonly string[]
  readonly ttlMs: number
}

/** Numbers the calls of a run. */
export interface Counter {
  next: number
}

/** What the callers in one process do: take leases in every way there is, and count under them. */
export class Workload {
  readonly process: Process
  readonly locks: Locks
  readonly #history: History
  readonly #store: Store
  readonly #random: Seeded
  readonly #terms: Terms
  readonly #calls: Counter
  readonly #leases = new Map<string, Lease>()
  /** Leases are kept, so that none is garbage-collected in the middle of a run: that would be up to the garbage collector. */
  readonly #kept: Lease[] = []
  isStopping = false
  running = 0

  constructor(
    process: Process,
    locks: Locks,
    parts: { history: History; store: Store; random: Seeded; terms: Terms; calls: Counter },
  ) {
    this.process = process
    this.locks = locks
    this.#history = parts.history
    this.#store = parts.store
    this.#random = parts.random
    this.#terms = parts.terms
    this.#calls = parts.calls
  }

  /** Tells the history what the locks tell. */
  observe(event: LockEvent): void {
    const { process } = this
    if (event.type === 'attempt') {
      this.#history.add({ at: process.nowMs, kind: 'attempt', process: process.name, owner: event.owner })
    }
    if (event.type === 'renewed') this.#renewed(event.owner)
    if (event.type === 'lost') this.#ends(event.owner, event.reason)
  }

  /** Validity as it stands after a clock was changed, at this true time: the process itself may stand still. */
  clockChanged(nowMs: number): void {
    for (const [owner, lease] of this.#leases) {
      const untilMs = this.#untilMs(lease)
      if (untilMs > this.process.nowMs) this.#until(owner, untilMs)
      else this.#until(owner, Math.min(nowMs, this.#untils.get(owner)!))
    }
  }

  start(tasks: number): void {
    for (let task = 0; task < tasks; task++) void this.#task(this.#random.fork(`task ${task}`))
  }

  async #task(random: Seeded): Promise<void> {
    this.running++
    while (!this.isStopping) {
      await sleep(this.process, random.pick([1, random.between(1, 30), random.between(1, 200)]))
      if (!this.isStopping) await this.#round(random)
    }
    this.running--
  }

  async #round(random: Seeded): Promise<void> {
    const { resources, ttlMs } = this.#terms
    const some = resources.length > 1 && random.chance(0.3) ? resources : [random.pick(resources)]
    const options = { ttl: random.chance(0.7) ? ttlMs : Math.max(50, Math.round(ttlMs / 3)), renew: random.chance(0.8) }
    const how = random.fraction()
    if (how < 0.3) {
      const lease = await this.call(some, 0, () => this.locks.tryAcquire(some, options))
      if (lease !== undefined) await this.#section(lease, random)
      return
    }
    const waitMs = Math.round(random.pick([random.between(5, 200), random.between(200, 3000)]))
    const controller = new AbortController()
    if (random.chance(0.1))
      void sleep(this.process, random.between(1, waitMs)).then(() => controller.abort(new Error('enough')))
    const { signal } = controller
    const lease = await this.call(some, waitMs, () => this.locks.acquire(some, { ...options, wait: waitMs, signal }))
    if (lease !== undefined) await this.#section(lease, random)
  }

  /** One call for a lease, from beginning to end. */
  async call(
    resources: readonly string[],
    waitMs: number,
    acquire: () => Promise<Lease | null>,
    turn: 'any' | 'first' | 'second' = 'any',
  ): Promise<Lease | undefined> {
    const call = this.#calls.next++
    const process = this.process.name
    this.#history.add({ at: this.process.nowMs, kind: 'call', process, call, resources, waitMs, turn })
    let lease: Lease | null = null
    let outcome = 'refused'
    try {
      lease = await acquire()
    } catch (error) {
      outcome = outcomeOf(error)
    }
    if (lease !== null) this.#holds(lease, call)
    const at = this.process.nowMs
    this.#history.add({ at, kind: 'return', process, call, outcome: lease === null ? outcome : 'granted' })
    return lease ?? undefined
  }

  /** What is done under a lease: count, renew, and give it back. */
  async #section(lease: Lease, random: Seeded): Promise<void> {
    const isCareful = random.chance(0.5)
    for (let round = random.pick([0, 1, 1, 2, 3]); round > 0 && lease.held; round--) {
      for (const resource of lease.resources) await this.#count(lease, resource, random, isCareful)
      if (random.chance(0.1)) await lease.extend(this.#terms.ttlMs).catch(ignoreLoss)
      await sleep(this.process, random.pick([0, random.between(0, 30), random.chance(0.2) ? this.#terms.ttlMs : 1]))
    }
    await this.release(lease)
  }

  async release(lease: Lease): Promise<void> {
    // Recorded before: from here on it is not used any more.
    if (!this.#ended.has(lease.owner)) this.#ends(lease.owner, 'released')
    await lease.release().catch(ignoreLoss)
  }

  /** A careful caller looks before each side effect whether it still holds; most code out there does not. */
  async #count(lease: Lease, resource: string, random: Seeded, isCareful: boolean): Promise<void> {
    const writer = { owner: lease.owner, token: Number(lease.token) }
    const mayGoOn = (): boolean => lease.held || !isCareful
    for (const store of random.shuffle(['unguarded', 'guarded'] as const)) {
      const value = await this.#store.read(this.process, random, store, resource, writer)
      if (value === undefined || !mayGoOn()) return
      await sleep(this.process, random.pick([1, random.between(1, 20)]))
      // The process may be paused right behind this look, or its write be long on its way: then it writes too late.
      if (!mayGoOn()) return
      await this.#store.write(this.process, random, store, resource, writer, value + 1)
    }
  }

  readonly #ended = new Set<string>()
  readonly #untils = new Map<string, number>()

  #holds(lease: Lease, call: number): void {
    this.#kept.push(lease)
    const { owner, resources } = lease
    this.#leases.set(owner, lease)
    const token = Number(lease.token)
    const { name } = this.process
    const untilMs = this.#untilMs(lease)
    const at = this.process.nowMs
    this.#untils.set(owner, untilMs)
    this.#history.add({ at, kind: 'holds', process: name, call, owner, token, resources, untilMs })
    const signal = (): void => {
      this.#history.add({ at: this.process.nowMs, kind: 'signal', process: name, owner, token })
    }
    lease.signal.addEventListener('abort', signal)
  }

  /** In true time. */
  #untilMs(lease: Lease): number {
    const leftMs = this.process.peek(() => lease.remaining())
    return this.process.nowMs + leftMs / this.process.machine.rate
  }

  #renewed(owner: string): void {
    const lease = this.#leases.get(owner)
    if (lease === undefined) return
    const untilMs = this.#untilMs(lease)
    // The process may have stood still since the answer: then it was renewed for a time that is over already.
    if (untilMs > this.process.nowMs) this.#until(owner, untilMs)
  }

  #until(owner: string, untilMs: number): void {
    this.#untils.set(owner, untilMs)
    const token = Number(this.#leases.get(owner)!.token)
    this.#history.add({ at: this.process.nowMs, kind: 'until', process: this.process.name, owner, token, untilMs })
  }

  #ends(owner: string, why: string): void {
    this.#ended.add(owner)
    const lease = this.#leases.get(owner)
    this.#leases.delete(owner)
    const token = lease === undefined ? 0 : Number(lease.token)
    this.#history.add({ at: this.process.nowMs, kind: 'ends', process: this.process.name, owner, token, why })
  }
}

function outcomeOf(error: unknown): string {
  if (error instanceof WaitTimeoutError) return 'timed out'
  if (error instanceof HeldError) return 'held'
  if (error instanceof EngineError) return error.transient ? 'no quorum' : 'closed'
  if (error instanceof Error && error.message === 'enough') return 'aborted'
  throw error
}

/** A lease that is lost, or an outcome that stays unknown, is part of the game. Anything else is not. */
function ignoreLoss(error: unknown): void {
  if (!(error instanceof LeaseLostError || error instanceof EngineError)) throw error
}
