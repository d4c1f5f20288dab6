import { optionsOrThrow } from '../arguments.ts'
import type { Clock } from '../clock.ts'
import { durationMs, type Duration } from '../duration.ts'
import type {
  Engine,
  Extension,
  Finding,
  Grant,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  Refusal,
  Release,
  Watch,
} from '../engine.ts'
import { memory } from '../engines/memory.ts'
import { findings } from '../engines/shared/findings.ts'
import { silent } from '../engines/shared/probe.ts'
import { EngineError } from '../errors.ts'
import { newOwner } from '../owner.ts'
import { systemRandom, type Random } from '../random.ts'

/** Options of the lease that another holder takes in a test. */
export interface TakeOptions {
  /** When the lease of the other holder ends: nobody renews it. Default 30 s. */
  ttl?: Duration
  /** The name of the other process, as in the options of `createLocks`. Default `other`. */
  label?: string
}

/** The holder that a test has put in the way. */
export interface Other {
  readonly owner: string
  readonly token: bigint
  /** Gives it back. Those who wait for it are woken. */
  release(): Promise<void>
}

const DEFAULT_TTL_MS = 30_000
const NO_SERVER = { roundTripMs: 0, clockOffsetMs: undefined }

/**
 * The engine of `memory()`, and a test decides what happens to it: someone else takes a lease, a lease is gone, the servers
 * do not answer.
 */
export class TestEngine implements Engine {
  readonly name = 'test'
  readonly identity = 'test'
  readonly guarantees: Engine['guarantees']
  readonly limits: Engine['limits']
  readonly #memory: Engine
  readonly #random: Random
  readonly #provers: (() => void)[] = []
  #outage: string | undefined

  constructor(options: { clock?: Clock; random?: Random } = {}) {
    optionsOrThrow(options, ['clock', 'random'])
    const { random = systemRandom, ...ofMemory } = options
    this.#memory = memory(ofMemory)
    this.#random = random
    this.guarantees = this.#memory.guarantees
    this.limits = this.#memory.limits
  }

  /**
   * Someone else has the resource from now on. A holder that had it is not told: as on most servers, it finds out at its next
   * renewal, after at most a third of its ttl, or when it gives the lease back.
   */
  async take(resource: string, options: TakeOptions = {}): Promise<Other> {
    optionsOrThrow(options, ['ttl', 'label'])
    const { ttl = DEFAULT_TTL_MS, label = 'other' } = options
    const owner = newOwner(this.#random, label)
    const next = { resources: [resource], owner, ttlMs: durationMs(ttl, 'ttl', { minMs: 1 }) }
    const holders = await this.#holders(resource)
    // In one turn: nobody else gets it in between.
    const released = holders.map((holder) => this.#memory.release(holder))
    const answer = await this.#memory.acquire(next)
    await Promise.all(released)
    if (answer.kind !== 'granted')
      throw new Error(`${resource}: expected to take it, but it has changed hands meanwhile`)
    const lease = { ...next, token: answer.token }
    return { owner, token: answer.token, release: async () => void (await this.#memory.release(lease)) }
  }

  /** Nobody has the resource any more. A holder that had it is told to renew at once, and finds out within a millisecond. */
  async lose(resource: string): Promise<void> {
    const holders = await this.#holders(resource)
    if (holders.length === 0) {
      throw new Error(`${resource}: expected a lease to lose, but nobody holds it; acquire it first`)
    }
    for (const holder of holders) await this.#memory.release(holder)
    for (const prove of this.#provers) prove()
  }

  /** From now on no call is answered: grants and releases reject with an `EngineError`, and renewals leave the lease in doubt. */
  outage(message = 'the test says that no server answers'): void {
    this.#outage = message
  }

  /** Ends the outage. The leases are as they were, less the time that has passed. */
  recover(): void {
    this.#outage = undefined
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    this.#reachOrThrow(request.resources)
    return this.#memory.acquire(request)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    if (this.#outage === undefined) return this.#memory.extend(leases)
    return leases.map(({ resources }) => ({ kind: 'unknown', cause: this.#failure(resources) }))
  }

  async release(lease: LeaseRef): Promise<Release> {
    this.#reachOrThrow(lease.resources)
    return this.#memory.release(lease)
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    this.#reachOrThrow(lease.resources)
    return this.#memory.handOver!(lease, next)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#memory.watch!(resources, freed)
  }

  onDoubt(prove: () => void): void {
    this.#provers.push(prove)
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    this.#reachOrThrow(resource === undefined ? [] : [resource])
    yield* this.#memory.inspect(resource)
  }

  async check(ttlMs: number): Promise<readonly Finding[]> {
    if (this.#outage === undefined) return this.#memory.check(ttlMs)
    return [findings(this.name).unreachable(this.#outage, 'Call recover().')]
  }

  async probe(): Promise<readonly NodeState[]> {
    return [this.#outage === undefined ? { node: this.name, ...NO_SERVER } : silent(this.name, this.#outage)]
  }

  async close(): Promise<void> {
    await this.#memory.close()
  }

  async #holders(resource: string): Promise<LeaseRef[]> {
    const holders: LeaseRef[] = []
    for await (const { owner, token } of this.#memory.inspect(resource)) {
      holders.push({ resources: [resource], owner, token, ttlMs: DEFAULT_TTL_MS })
    }
    return holders
  }

  #reachOrThrow(resources: readonly string[]): void {
    if (this.#outage !== undefined) throw this.#failure(resources)
  }

  #failure(resources: readonly string[]): EngineError {
    return new EngineError(`${this.name}: ${this.#outage}`, resources)
  }
}
