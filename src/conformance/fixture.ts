import assert from 'node:assert/strict'
import { sleep, systemClock } from '../clock.ts'
import type { Engine, Grant, LeaseInfo, LeaseRef, LeaseRequest, Refusal } from '../engine.ts'
import { createLocks, type Locks } from '../locks.ts'
import { systemRandom } from '../random.ts'

/** The methods that an engine may have or not. */
export type OptionalMethod = {
  [Method in keyof Engine]-?: undefined extends Engine[Method] ? Method : never
}[keyof Engine]

/** What the conformance suite needs to know of the engine that it tests. */
export interface ConformanceSetup {
  /** Returns a new engine on the same servers at every call, as another process would have it. */
  engine(): Engine | Promise<Engine>
  /** The optional methods that the engine has. A case checks that the list is right; default none. */
  methods?: readonly OptionalMethod[]
  /** Whether the engine has shared leases. A case checks that its guarantees say the same; default false. */
  shared?: boolean
  /** Ends the engine's connections as a broken network does; needed for `onDoubt`. */
  disconnect?: (engine: Engine) => void | Promise<void>
  /** The shortest ttl whose end a case waits for; default 200 ms. */
  shortTtlMs?: number
  /** How long a case waits at most for something that must happen; default 20 s. */
  patienceMs?: number
}

/** Claims about the engine, and how to find out whether each is true. */
export type Cases = Readonly<Record<string, (fixture: Fixture) => Promise<void>>>

export const LONG_TTL_MS = 30_000

interface Held {
  readonly one: Engine
  readonly two: Engine
  readonly lease: LeaseRef
  readonly resources: readonly string[]
}

/** Makes what a case needs, and removes it afterwards. */
export class Fixture {
  readonly shortTtlMs: number
  readonly #setup: ConformanceSetup
  readonly #patienceMs: number
  readonly #engines: Engine[] = []
  readonly #locks: Locks[] = []
  readonly #leases: [Engine, LeaseRef][] = []
  readonly #endings: (() => Promise<void>)[] = []

  constructor(setup: ConformanceSetup) {
    this.#setup = setup
    this.shortTtlMs = setup.shortTtlMs ?? 200
    this.#patienceMs = setup.patienceMs ?? 20_000
  }

  async engine(): Promise<Engine> {
    const engine = await this.#setup.engine()
    this.#engines.push(engine)
    // The first attempt on new servers may end without a winner ('split'), and the core would just make another.
    for (let attempt = 0; attempt < 5; attempt++) {
      const request = this.request()
      const outcome = await engine.acquire(request)
      if (outcome.kind === 'refused') continue
      await engine.release({ ...request, token: outcome.token })
      return engine
    }
    assert.fail('a free resource was refused five times')
  }

  /** Of two processes. */
  async engines(): Promise<[Engine, Engine]> {
    return [await this.engine(), await this.engine()]
  }

  /** The engines of two processes, and a lease that the first of them has. */
  async held(some: Partial<LeaseRequest> = {}): Promise<Held> {
    const [one, two] = await this.engines()
    const lease = await this.lease(one, some)
    return { one, two, lease, resources: lease.resources }
  }

  /** The locks of two processes, and a name that both want. */
  async rivals(): Promise<{ one: Locks; two: Locks; name: string }> {
    return { one: await this.locks(), two: await this.locks(), name: this.name() }
  }

  async locks(): Promise<Locks> {
    return this.#locksOn(await this.#setup.engine())
  }

  /** Locks whose next extension after `doubt()` has no answer. */
  async doubtfulLocks(): Promise<{ readonly locks: Locks; readonly doubt: () => void }> {
    const engine = await this.#setup.engine()
    let isLost = false
    const extend: Engine['extend'] = async (leases) => {
      const answers = await engine.extend(leases)
      if (!isLost) return answers
      isLost = false
      return leases.map(() => ({ kind: 'unknown', cause: new Error('no answer, says the case') }))
    }
    const lossy = new Proxy(engine, {
      get(target, name) {
        if (name === 'extend') return extend
        const value: unknown = Reflect.get(target, name)
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
    return { locks: this.#locksOn(lossy), doubt: () => void (isLost = true) }
  }

  #locksOn(engine: Engine): Locks {
    const locks = createLocks(engine, { ttl: LONG_TTL_MS })
    this.#locks.push(locks)
    return locks
  }

  owner(): string {
    return `${systemRandom.id()}@conformance`
  }

  name(): string {
    return this.names(1)[0]!
  }

  /** Names that no other run uses, in one hash slot. */
  names(count: number): string[] {
    const group = systemRandom.id().slice(0, 12)
    return Array.from({ length: count }, (_, index) => `{${group}}:${index}`)
  }

  request(some: Partial<LeaseRequest> = {}): LeaseRequest {
    return { resources: this.names(1), owner: this.owner(), ttlMs: LONG_TTL_MS, ...some }
  }

  /** Releases it after the case, if it is still there. */
  keep(engine: Engine, lease: LeaseRef): void {
    this.#leases.push([engine, lease])
  }

  async granted(engine: Engine, request: LeaseRequest): Promise<Grant> {
    const outcome = await engine.acquire(request)
    assert.equal(outcome.kind, 'granted', `${request.resources.join(', ')}: ${JSON.stringify(outcome, plain)}`)
    this.#leases.push([engine, { ...request, token: outcome.token }])
    return outcome
  }

  async refused(engine: Engine, request: LeaseRequest): Promise<Refusal> {
    const outcome = await engine.acquire(request)
    assert.equal(outcome.kind, 'refused', request.resources.join(', '))
    return outcome
  }

  /** Refused, because the owner has it: with the time that is left. */
  async refusedFor(owner: string, engine: Engine, request: LeaseRequest): Promise<void> {
    const { reason, holder, remainingMs: left = 0 } = await this.refused(engine, request)
    assert.deepEqual([reason, holder], ['held', owner])
    assert.ok(left > 0 && left <= LONG_TTL_MS, `expected up to ${LONG_TTL_MS} ms left, got ${left}`)
  }

  async eventuallyGranted(engine: Engine, request: LeaseRequest): Promise<Grant> {
    let outcome: Grant | Refusal | undefined
    await this.eventually('the earlier lease to end', async () => {
      outcome = await engine.acquire(request)
      return outcome.kind === 'granted'
    })
    this.#leases.push([engine, { ...request, token: (outcome as Grant).token }])
    return outcome as Grant
  }

  async lease(engine: Engine, some: Partial<LeaseRequest> = {}): Promise<LeaseRef> {
    const request = this.request(some)
    const { token } = await this.granted(engine, request)
    return { ...request, token }
  }

  /** The optional methods that the setup names. */
  get methods(): readonly OptionalMethod[] {
    return this.#setup.methods ?? []
  }

  /** Whether the setup says that there are shared leases. */
  get shared(): boolean {
    return this.#setup.shared ?? false
  }

  async disconnect(engine: Engine): Promise<void> {
    await this.#setup.disconnect!(engine)
  }

  /** Ends an engine before the case is over. Another engine releases what it leaves. */
  async end(engine: Engine, heir: Engine): Promise<void> {
    this.#engines.splice(this.#engines.indexOf(engine), 1)
    for (const kept of this.#leases) if (kept[0] === engine) kept[0] = heir
    await engine.close()
  }

  async eventually(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    const until = systemClock.monotonicMs() + this.#patienceMs
    while (!(await isSo())) {
      if (systemClock.monotonicMs() > until) assert.fail(`waited ${this.#patienceMs} ms for ${what}`)
      await sleep(systemClock, 5)
    }
  }

  /** Runs before everything else is removed. */
  onClose(ending: () => Promise<void>): void {
    this.#endings.push(ending)
  }

  async close(): Promise<void> {
    for (const ending of this.#endings) await ending()
    for (const [engine, lease] of this.#leases) await engine.release(lease)
    for (const locks of this.#locks) await locks.close()
    for (const engine of this.#engines) await engine.close()
  }
}

export async function collect(infos: AsyncIterable<LeaseInfo>): Promise<LeaseInfo[]> {
  const all: LeaseInfo[] = []
  for await (const info of infos) all.push(info)
  return all
}

function plain(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}
