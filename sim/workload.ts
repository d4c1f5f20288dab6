import type { EngineError } from '../src/errors.ts'
import type { LockEvent } from '../src/events.ts'
import { sleep } from '../src/clock.ts'
import type { Lease } from '../src/lease.ts'
import type { Locks } from '../src/locks.ts'
import type { RunLog } from '../src/runs.ts'
import { Beliefs } from './beliefs.ts'
import type { History } from './history.ts'
import type { ObjectStorage } from './objects.ts'
import { Kinds, type KindsParts } from './kinds.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import type { Store } from './store.ts'

export interface Terms {
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly maxTtlMs: number
  /** A shorter ttl is refused. Default: the core's own least. */
  readonly leastTtlMs?: number
  /** Which part of the calls is for a shared lease. */
  readonly readers: number
  /** Every call that there is, and not only `acquire` and `tryAcquire`. */
  readonly callsAll: boolean
  /** Work that takes longer than a lease. */
  readonly lingers: boolean
}

/** Numbers the calls of a run. */
export interface Counter {
  next: number
}

interface How {
  readonly turn?: 'any' | 'first' | 'second'
  readonly isBounded?: boolean
}

const LEAST_TTL_MS = 50

/** What the callers in one process do: take leases in every way there is, and count under them. */
export class Workload {
  readonly process: Process
  readonly locks: Locks
  /** What is done with the kinds of locks that are more than a lease. */
  readonly kinds: Kinds | undefined
  readonly #history: History
  readonly #store: Store
  readonly #random: Seeded
  readonly #terms: Terms
  readonly #leastTtlMs: number
  readonly #calls: Counter
  readonly #lastId: () => number
  readonly #beliefs: Beliefs
  readonly #readers: Seeded
  readonly #objects: ObjectStorage | undefined
  /** Whether they look at what there is, and say what they do. */
  readonly #looks: { readonly runs: RunLog; readonly random: Seeded } | undefined
  readonly #counts: Seeded
  #counted = 0
  isStopping = false
  isClosed = false
  running = 0

  constructor(
    process: Process,
    locks: Locks,
    parts: {
      history: History
      store: Store
      random: Seeded
      terms: Terms
      calls: Counter
      lastId: () => number
      kinds?: Pick<KindsParts, 'plan' | 'permits' | 'tickets' | 'guard'>
      objects?: ObjectStorage
      looks?: { readonly runs: RunLog }
    },
  ) {
    this.process = process
    this.locks = locks
    this.#history = parts.history
    this.#store = parts.store
    this.#random = parts.random
    this.#readers = parts.random.fork('readers')
    this.#objects = parts.objects
    this.#looks = parts.looks && { ...parts.looks, random: parts.random.fork('looks') }
    this.#counts = parts.random.fork('counts')
    this.#terms = parts.terms
    this.#leastTtlMs = parts.terms.leastTtlMs ?? LEAST_TTL_MS
    this.#calls = parts.calls
    this.#lastId = parts.lastId
    this.#beliefs = new Beliefs(process, parts.history)
    const { history, random, terms, kinds } = parts
    const { resources, ttlMs, maxTtlMs } = terms
    this.kinds =
      kinds && new Kinds(this, { ...kinds, history, resources, ttlMs, maxTtlMs, random: random.fork('kinds') })
  }

  /** Tells the history what the locks tell. */
  observe(event: LockEvent): void {
    const { process } = this
    if (event.type === 'attempt') {
      this.#history.add({ at: process.nowMs, kind: 'attempt', process: process.name, owner: event.owner })
    }
    if (event.type === 'renewed') this.#beliefs.renewed(event.owner)
    if (event.type === 'lost') this.#beliefs.ends(event.owner, event.reason)
    if (event.type === 'left') {
      const { owner, cause } = event
      const isSet = cause === undefined
      this.#history.add({ at: process.nowMs, kind: 'rests', process: process.name, owner, isSet })
    }
  }

  clockChanged(nowMs: number): void {
    this.#beliefs.clockChanged(nowMs)
  }

  shortened(): void {
    this.#beliefs.shortened()
  }

  start(tasks: number): void {
    for (let task = 0; task < tasks; task++) void this.#task(this.#random.fork(`task ${task}`))
  }

  /** Whatever is under way: nothing of it may be left. */
  close(): void {
    this.isStopping = true
    this.isClosed = true
    const process = this.process.name
    this.#history.add({ at: this.process.nowMs, kind: 'closing', process })
    void this.locks
      .close()
      .then(() => this.#history.add({ at: this.process.nowMs, kind: 'shut', process, lastId: this.#lastId() }))
    this.#beliefs.closed()
  }

  async #task(random: Seeded): Promise<void> {
    this.running++
    while (!this.isStopping) {
      await sleep(this.process, random.pick([1, random.between(1, 30), random.between(1, 200)]))
      if (this.isStopping) break
      if (this.kinds?.isNext() === true) await this.kinds.round(random)
      else await this.#round(random)
    }
    this.running--
  }

  async #round(random: Seeded): Promise<void> {
    const { resources, ttlMs, callsAll, readers } = this.#terms
    const some = resources.length > 1 && random.chance(0.3) ? resources : [random.pick(resources)]
    const isBounded = callsAll && random.chance(0.2)
    const maxHold = isBounded ? { maxHold: Math.round(random.between(0.1, 2) * ttlMs) } : {}
    const manner = random.fork(`manner ${this.#calls.next}`)
    const options = {
      ttl: random.chance(0.7) ? ttlMs : Math.max(this.#leastTtlMs, Math.round(ttlMs / 3)),
      renew: random.chance(0.8),
      ...maxHold,
      ...(callsAll && manner.chance(0.2) ? { onDoubt: 'stop' as const } : {}),
      ...this.#note(),
    }
    if (this.#looks?.random.chance(0.2) === true) await this.#look(this.#looks.random)
    if (callsAll && random.chance(0.15)) return this.#once(random.pick(resources), random)
    if (callsAll && random.chance(0.15)) return this.#elect(random.pick(resources), options, random)
    const shared = readers > 0 && this.#readers.chance(readers)
    const how = random.fraction()
    if (how < 0.3) {
      const lease = await this.call(some, 0, () => this.locks.tryAcquire(some, { ...options, shared }), { isBounded })
      if (lease !== undefined) await this.section(lease, random)
      return
    }
    const waitMs = Math.round(random.pick([random.between(5, 200), random.between(200, 3000)]))
    const signal = random.chance(0.1) ? this.enoughAfter(random.between(1, waitMs)) : new AbortController().signal
    const terms = { ...options, shared, wait: waitMs, signal }
    if (callsAll && random.chance(0.3)) {
      return this.within(this.asks(some, waitMs, { isBounded }), random, (work) => this.locks.using(some, terms, work))
    }
    const tries = callsAll && manner.chance(0.3)
    const acquire = (): Promise<Lease | null> =>
      tries ? this.locks.tryAcquire(some, terms) : this.locks.acquire(some, terms)
    const lease = await this.call(some, waitMs, acquire, { isBounded })
    if (lease !== undefined) await this.section(lease, random)
  }

  #note(): { note?: string } {
    return this.#looks?.random.chance(0.3) === true ? { note: `call ${this.#calls.next}` } : {}
  }

  /** As people and dashboards do it. */
  async #look(random: Seeded): Promise<void> {
    const { locks, process } = this
    const { resources } = this.#terms
    const name = random.chance(0.5) ? random.pick(resources) : undefined
    const looks = [
      async () => {
        const fromMs = process.nowMs
        const owners: string[] = []
        for await (const { owner } of locks.inspect(name)) owners.push(owner)
        const { nowMs: at, name: by } = process
        const seen = name === undefined ? resources : [name]
        this.#history.add({ at, kind: 'inspected', process: by, fromMs, resources: seen, owners })
      },
      () => locks.probe(),
      () => locks.check(),
    ]
    await random.pick(looks)().catch(ignoreLoss)
  }

  enoughAfter(ms: number): AbortSignal {
    const controller = new AbortController()
    void sleep(this.process, ms).then(() => controller.abort(new Error('enough')))
    return controller.signal
  }

  async #once(resource: string, random: Seeded): Promise<void> {
    const { ttlMs, maxTtlMs } = this.#terms
    const atLeastMs = random.pick([0, Math.round(random.between(0.05, 1) * maxTtlMs)])
    const atMost = random.chance(0.3) ? { atMost: atLeastMs + Math.round(random.between(1, 2 * ttlMs)) } : {}
    const runs = this.#looks?.random.chance(0.7) === true ? { runs: this.#looks.runs } : {}
    const options = { atLeast: atLeastMs, ttl: ttlMs, ...atMost, ...runs, ...this.#note() }
    const job = async (lease: Lease, work: (lease: Lease) => Promise<void>): Promise<void> => {
      const { nowMs: at, name: process } = this.process
      this.#history.add({
        at,
        kind: 'once',
        process,
        owner: lease.owner,
        resource,
        atLeastMs,
        ttlMs: Math.max(ttlMs, atLeastMs),
      })
      // A job may ask for less than the rest of its time, and must not get it.
      const shortens = atLeastMs > 0 && random.fork(lease.owner).chance(0.2)
      await Promise.all([work(lease), shortens ? lease.extend(this.#leastTtlMs).catch(ignoreLoss) : undefined])
    }
    await this.within(this.asks([resource], 0, { isBounded: true }), random, (work) =>
      this.locks.once(resource, options, (lease) => job(lease, work)),
    )
  }

  /** Leads until the work is done, the lease is lost, or the campaign is over; campaigns again after a loss. */
  async #elect(resource: string, options: { ttl: number }, random: Seeded): Promise<void> {
    const campaignMs = Math.round(random.between(10, 3000))
    const signal = this.enoughAfter(campaignMs)
    const leadsOn = random.chance(0.5)
    await this.within(this.asks([resource], campaignMs, { isBounded: true }), random, (work) =>
      this.locks.elect(resource, { ...options, signal }, async (lease) => {
        try {
          await work(lease)
          if (leadsOn && lease.held && !lease.signal.aborted)
            await new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
        } finally {
          // The signal has aborted before the release, so it does not report the release.
          if (signal.aborted && lease.held) this.#beliefs.ends(lease.owner, 'released')
        }
      }),
    )
  }

  /** A call that runs the work itself, once or, after a loss, again. */
  async within(
    call: number,
    random: Seeded,
    run: (work: (lease: Lease) => Promise<void>) => Promise<unknown>,
  ): Promise<void> {
    let isOpen = true
    try {
      await run(async (lease) => {
        this.gets(isOpen ? call : this.asks(lease.resources, 0, { isBounded: true }), lease)
        isOpen = false
        await this.work(lease, random)
      })
      if (isOpen) this.returns(call, 'refused')
    } catch (error) {
      const outcome = outcomeOf(error)
      if (isOpen) this.returns(call, outcome)
    }
  }

  /** One call for a lease, from beginning to end. */
  async call(
    resources: readonly string[],
    waitMs: number,
    acquire: () => Promise<Lease | null>,
    how: How = {},
  ): Promise<Lease | undefined> {
    const call = this.asks(resources, waitMs, how)
    try {
      const lease = await acquire()
      if (lease === null) this.returns(call, waitMs > 0 ? 'timed out' : 'refused')
      else this.gets(call, lease)
      return lease ?? undefined
    } catch (error) {
      this.returns(call, outcomeOf(error))
      return undefined
    }
  }

  asks(resources: readonly string[], waitMs: number, { turn = 'any', isBounded = false }: How = {}): number {
    const call = this.#calls.next++
    const { nowMs: at, name: process } = this.process
    this.#history.add({ at, kind: 'call', process, call, resources, waitMs, turn, isBounded })
    return call
  }

  gets(call: number, lease: Lease): void {
    this.#beliefs.holds(lease, call)
    this.returns(call, 'granted')
  }

  returns(call: number, outcome: string): void {
    this.#history.add({ at: this.process.nowMs, kind: 'return', process: this.process.name, call, outcome })
  }

  /** What is done under a lease: count, renew, and give it back. */
  async section(lease: Lease, random: Seeded): Promise<void> {
    await this.work(lease, random)
    await this.release(lease)
  }

  /** `extendsIt`: for another time, now and then. */
  async work(lease: Lease, random: Seeded, extendsIt = true): Promise<void> {
    const { ttlMs, maxTtlMs, callsAll, lingers } = this.#terms
    const isCareful = random.chance(0.5)
    for (let round = random.pick([0, 1, 1, 2, 3]); round > 0 && lease.held; round--) {
      for (const resource of lease.resources) {
        // Those that are not refused by the other stores before are the stale ones, most of all.
        const first = this.#counts.chance(0.5)
        if (first) await this.#countObjects(lease, resource)
        await this.#count(lease, resource, random, isCareful)
        if (!first) await this.#countObjects(lease, resource)
      }
      const otherMs = callsAll ? Math.round(random.between(this.#leastTtlMs, maxTtlMs)) : ttlMs
      if (random.chance(0.1) && extendsIt) await lease.extend(otherMs).catch(ignoreLoss)
      await sleep(this.process, random.pick([0, random.between(0, 30), random.chance(0.2) ? ttlMs : 1]))
      if (lingers && random.chance(0.5)) await sleep(this.process, 2 * ttlMs)
    }
  }

  async release(lease: Lease): Promise<void> {
    // Recorded before: from here on it is not used any more.
    this.#beliefs.ends(lease.owner, 'released')
    await lease.release().catch(ignoreLoss)
  }

  /** A careful caller looks before each side effect whether it still holds; most code out there does not. */
  async #count(lease: Lease, resource: string, random: Seeded, isCareful: boolean): Promise<void> {
    const writer = { owner: lease.owner, token: Number(lease.token) }
    const mayGoOn = (): boolean => lease.held || !isCareful
    for (const store of random.shuffle(['unguarded', 'guarded'] as const)) {
      const value = await this.#store.read(this.process, random, store, resource, writer)
      if (value === undefined || !mayGoOn()) return
      if (lease.shared) continue
      await sleep(this.process, random.pick([1, random.between(1, 20)]))
      // The process may be paused right behind this look, or its write be long on its way: then it writes too late.
      if (!mayGoOn()) return
      await this.#store.write(this.process, random, store, resource, writer, value + 1)
    }
  }

  async #countObjects(lease: Lease, resource: string): Promise<void> {
    if (this.#objects === undefined || lease.shared) return
    await this.#objects.count(this.process, lease, resource, this.#counts.fork(++this.#counted))
  }
}

/** A lease that is lost, or an outcome that stays unknown, is part of the game. Anything else is not. */
export function ignoreLoss(error: unknown): undefined {
  outcomeOf(error)
}

const OUTCOMES: Readonly<Record<string, string>> = { WAIT_TIMEOUT: 'timed out', HELD: 'held', LEASE_LOST: 'lost' }

export function outcomeOf(error: unknown): string {
  // By their codes: those of an older version are of other classes.
  const { code, transient, message } = error as Partial<Pick<EngineError, 'transient' | 'message'>> & { code?: string }
  if (code === 'ENGINE' || code === 'QUORUM') return transient === true ? 'no quorum' : 'closed'
  const outcome = OUTCOMES[code ?? '']
  if (outcome !== undefined) return outcome
  if (message === 'enough') return 'aborted'
  throw error
}
