import { sleep } from '../src/clock.ts'
import { GuardError, StaleTokenError } from '../src/errors.ts'
import type { RedisGuard } from '../src/guards/redis.ts'
import type { Lease, LeaseJson } from '../src/lease.ts'
import type { Semaphore } from '../src/semaphore.ts'
import { scriptOf, type Wanted } from './effects.ts'
import type { History } from './history.ts'
import { POOL, type KindsPlan } from './plan.ts'
import type { Seeded } from './random.ts'
import { ignoreLoss, outcomeOf, type Workload } from './workload.ts'

/** Tickets of leases that were handed off, or are offered while their holder goes on. Any process that comes by takes one, and may leave it there for others. */
export type Tickets = LeaseJson[]

export interface KindsParts {
  readonly history: History
  readonly random: Seeded
  readonly plan: KindsPlan
  /** How many permits this process knows of. */
  readonly permits: number
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly tickets: Tickets
  readonly guard: RedisGuard
}

/** How many effects of a resource there are to be wanted by several callers. */
const EFFECTS = 3
/** The record of the last of them is kept for this long only. */
const KEEP_MS = 700

/** What the callers of a process do with the kinds of locks that are more than a lease: a part of its workload. */
export class Kinds {
  readonly pool: Semaphore
  readonly #workload: Workload
  readonly #parts: KindsParts
  readonly #kinds: readonly ((random: Seeded) => Promise<void>)[]
  #effects = 0

  constructor(workload: Workload, parts: KindsParts) {
    const { permits, moves, meddles, nests, effects } = parts.plan
    this.#workload = workload
    this.#parts = parts
    this.pool = workload.locks.semaphore(POOL, Math.max(parts.permits, 1))
    this.#kinds = [
      ...(permits > 0 ? [(random: Seeded) => this.#permit(random)] : []),
      ...(moves ? [(random: Seeded) => this.#handOff(random), (random: Seeded) => this.#adopt(random)] : []),
      ...(nests ? [(random: Seeded) => this.#nest(random)] : []),
      ...(meddles
        ? [
            (random: Seeded) => this.#offer(random),
            (random: Seeded) => this.#adopt(random),
            (random: Seeded) => this.#force(random),
          ]
        : []),
      ...(effects ? [(random: Seeded) => this.#effect(random)] : []),
    ]
  }

  /** Whether the next call is for one of them. */
  isNext(): boolean {
    return this.#kinds.length > 0 && this.#parts.random.chance(this.#parts.plan.part)
  }

  round(random: Seeded): Promise<void> {
    return random.pick(this.#kinds)(random)
  }

  async #permit(random: Seeded): Promise<void> {
    const { ttlMs } = this.#parts
    const workload = this.#workload
    const options = { ttl: ttlMs, renew: random.chance(0.8) }
    const how = random.fraction()
    const waitMs = how < 0.3 ? 0 : Math.round(random.pick([random.between(5, 200), random.between(200, 3000)]))
    const signal = random.chance(0.1) ? workload.enoughAfter(random.between(1, 500)) : new AbortController().signal
    const terms = { ...options, wait: waitMs, signal }
    if (how > 0.7) {
      const call = workload.asks([POOL], waitMs)
      return workload.within(call, random, (work) => this.pool.using(terms, work))
    }
    const tries = random.chance(0.5)
    const lease = await workload.call([POOL], waitMs, () =>
      tries ? this.pool.tryAcquire(terms) : this.pool.acquire(terms),
    )
    if (lease !== undefined) await workload.section(lease, random)
  }

  /** What cannot be handed off goes on here, and is given back. */
  async #handOff(random: Seeded): Promise<void> {
    const { resources, ttlMs, tickets } = this.#parts
    const workload = this.#workload
    const some = resources.length > 1 && random.chance(0.3) ? resources : [random.pick(resources)]
    const waitMs = Math.round(random.between(5, 1000))
    const options = { ttl: ttlMs, renew: random.chance(0.8), wait: waitMs }
    const lease = await workload.call(some, waitMs, () => workload.locks.acquire(some, options))
    if (lease === undefined) return
    if (random.chance(0.5)) await workload.work(lease, random)
    const ticket = await lease.handOff().catch(ignoreLoss)
    if (ticket === undefined) return workload.release(lease)
    // On its way, also for longer than the lease is. A process that crashes now takes it with it.
    await sleep(workload.process, random.pick([0, random.between(0, 50), random.between(0, 1.5 * ttlMs)]))
    tickets.push(JSON.parse(JSON.stringify(ticket)) as LeaseJson)
  }

  /** Its ticket may be used by another one, and the lease be ended by a person, while it goes on here. */
  async #offer(random: Seeded): Promise<void> {
    const { history, resources, ttlMs, tickets } = this.#parts
    const workload = this.#workload
    const some = resources.length > 1 && random.chance(0.3) ? resources : [random.pick(resources)]
    const waitMs = Math.round(random.between(5, 1000))
    const lease = await workload.call(some, waitMs, () => workload.locks.acquire(some, { ttl: ttlMs, wait: waitMs }))
    if (lease === undefined) return
    const json = lease.toJSON()
    if (json.held) {
      history.add({ at: workload.process.nowMs, kind: 'offered', process: workload.process.name, owner: lease.owner })
      tickets.push(JSON.parse(JSON.stringify(json)) as LeaseJson)
    }
    if (random.chance(0.2)) lease.stopRenewing()
    for (let times = random.int(1, 3); times > 0 && lease.held; times--) {
      await lease.proved().catch(ignoreLoss)
      // An extension to another time would outlast what the ticket says.
      await workload.work(lease, random, false)
      await sleep(workload.process, random.between(0, ttlMs))
    }
    await workload.release(lease)
  }

  /** The process that has it goes on until the next renewal. */
  async #force(random: Seeded): Promise<void> {
    const { history, resources } = this.#parts
    const { locks, process } = this.#workload
    const resource = random.pick(resources)
    try {
      const status = await locks.status(resource)
      const holder = status?.holders[0]
      if (holder === undefined || holder.token === 0n) return
      history.add({ at: process.nowMs, kind: 'forced', process: process.name, owner: holder.owner })
      await locks.forceRelease(resource, { token: holder.token, owner: holder.owner })
    } catch (error) {
      ignoreLoss(error)
    }
  }

  async #adopt(random: Seeded): Promise<void> {
    const { history, tickets, maxTtlMs } = this.#parts
    const workload = this.#workload
    // The last one most often: the others have probably run out.
    const index = random.chance(0.7) ? tickets.length - 1 : random.int(0, tickets.length - 1)
    const ticket = tickets[index]
    // One that is longer than this process may hold is refused as an argument.
    if (ticket === undefined || ticket.ttlMs > maxTtlMs) return
    // Somebody else may find it too.
    if (random.chance(0.6)) tickets.splice(index, 1)
    const renew = random.chance(0.8)
    const lease = await workload.call(ticket.resources, 0, () => workload.locks.adopt(ticket, { renew }))
    if (lease === undefined) return
    const { owner, resources } = lease
    const { nowMs: at, name: process } = workload.process
    const former = { former: ticket.owner, formerToken: Number(ticket.token) }
    history.add({ at, kind: 'adopted', process, owner, token: Number(lease.token), resources, ...former })
    await workload.section(lease, random)
  }

  async #nest(random: Seeded): Promise<void> {
    const { resources, ttlMs } = this.#parts
    const workload = this.#workload
    const some = resources.length > 1 && random.chance(0.5) ? resources : [random.pick(resources)]
    const waitMs = Math.round(random.between(5, 1000))
    const shared = random.chance(0.2)
    const terms = { ttl: ttlMs, wait: waitMs, shared, reentrant: true }
    const call = workload.asks(some, waitMs)
    await workload.within(call, random, (work) =>
      workload.locks.using(some, terms, async (lease) => {
        await work(lease)
        for (let times = random.int(1, 2); times > 0; times--) await this.#inside(lease, random)
      }),
    )
  }

  /** A call inside of the work under a lease: it joins it, if that is not over by then. */
  async #inside(lease: Lease, random: Seeded): Promise<void> {
    const { ttlMs, history } = this.#parts
    const workload = this.#workload
    const { process } = workload
    const resource = random.pick(lease.resources)
    const waitMs = Math.round(random.between(5, 200))
    const terms = { ttl: ttlMs, wait: waitMs, shared: lease.shared, reentrant: true }
    const call = workload.asks([resource], waitMs)
    const { owner } = lease
    const token = Number(lease.token)
    const wasHeld = process.peek(() => lease.held)
    const tell = (outcome: 'joined' | 'own' | 'refused', inner: number): void => {
      const isHeld = wasHeld && process.peek(() => lease.held)
      const { nowMs: at, name } = process
      history.add({ at, kind: 'nested', process: name, owner, token, outcome, inner, isHeld })
    }
    let isOpen = true
    try {
      await workload.locks.using(resource, terms, async (inner) => {
        isOpen = false
        const isJoined = inner.owner === owner
        if (isJoined) workload.returns(call, 'joined')
        else workload.gets(call, inner)
        tell(isJoined ? 'joined' : 'own', Number(inner.token))
        await workload.work(inner, random)
      })
    } catch (error) {
      const outcome = outcomeOf(error)
      if (!isOpen) return
      workload.returns(call, outcome)
      if (outcome !== 'closed' && outcome !== 'no quorum') tell('refused', 0)
    }
    const { nowMs: at, name } = process
    history.add({ at, kind: 'unnested', process: name, owner, token, released: lease.released })
    // What the lease around it is for goes on, and needs it.
    if (random.chance(0.7)) await workload.work(lease, random)
  }

  async #effect(random: Seeded): Promise<void> {
    const { resources, ttlMs } = this.#parts
    const workload = this.#workload
    const resource = random.pick(resources)
    const waitMs = Math.round(random.between(5, 1000))
    const lease = await workload.call([resource], waitMs, () =>
      workload.locks.acquire(resource, { ttl: ttlMs, wait: waitMs }),
    )
    if (lease === undefined) return
    for (let times = random.int(1, 2); times > 0; times--) {
      const number = random.int(1, EFFECTS)
      const wanted = { resource, key: `${resource}-e${number}`, keepMs: number === EFFECTS ? KEEP_MS : undefined }
      const isDone = await this.#once(wanted, lease)
      // What took effect is not known: the same call again finds out.
      if (!isDone && random.chance(0.7)) await this.#once(wanted, lease)
    }
    await workload.release(lease)
  }

  async #once(wanted: Wanted, lease: Lease): Promise<boolean> {
    const { guard, history } = this.#parts
    const { process } = this.#workload
    const { resource, key, keepMs } = wanted
    const asked = `${process.name}:${++this.#effects}`
    const options = keepMs === undefined ? {} : { keep: keepMs }
    try {
      const { ran, value, token } = await guard.once<string>(lease, key, scriptOf(wanted, asked), options)
      const { nowMs: at, name } = process
      history.add({ at, kind: 'told', process: name, resource, key, token: Number(token), ran, value, asked })
      return true
    } catch (error) {
      if (!(error instanceof GuardError || error instanceof StaleTokenError)) throw error
      return error instanceof StaleTokenError
    }
  }
}
