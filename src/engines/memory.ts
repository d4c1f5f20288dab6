import { systemClock, type Clock } from '../clock.ts'
import type {
  Engine,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  Refusal,
  Release,
  Watch,
} from '../engine.ts'
import { findings } from './shared/findings.ts'
import { Watchers } from './shared/watchers.ts'

interface Holding {
  readonly owner: string
  readonly token: bigint
  untilMs: number
}

const GUARANTEES: Guarantees = {
  exclusion: 'one process',
  clock: 'own process',
  token: 'one counter for each resource, as long as the engine exists',
  survives: { serverRestart: 'no', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served in one process',
}

/** Leases within one process: for tests, for a single instance, and as the reference for other engines. */
export function memory(options: { clock?: Clock } = {}): Engine {
  return new MemoryEngine(options.clock ?? systemClock)
}

class MemoryEngine implements Engine {
  readonly name = 'memory'
  readonly identity = 'memory'
  readonly guarantees = GUARANTEES
  // One clock measures both the lease and its validity, so there is no drift between them.
  readonly limits = { maxTtlMs: Number.MAX_SAFE_INTEGER, driftMs: () => 0 }
  readonly #clock: Clock
  readonly #holdings = new Map<string, Holding>()
  readonly #counters = new Map<string, bigint>()
  readonly #watchers = new Watchers()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  async acquire({ resources, owner, ttlMs }: LeaseRequest): Promise<Grant | Refusal> {
    const own = this.#ownHoldings({ resources, owner })
    if (own !== undefined) return { kind: 'granted', token: own[0]!.token }
    const now = this.#clock.monotonicMs()
    let blocker: Holding | undefined
    for (const resource of resources) {
      const holding = this.#holding(resource)
      if (holding !== undefined && holding.untilMs > (blocker?.untilMs ?? 0)) blocker = holding
    }
    if (blocker !== undefined) {
      return {
        kind: 'refused',
        reason: 'held',
        holder: blocker.owner,
        remainingMs: blocker.untilMs - now,
      }
    }
    return this.#grant(resources, owner, ttlMs)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return leases.map((lease) => {
      const holdings = this.#ownHoldings(lease)
      if (holdings === undefined) return { kind: 'lost' }
      for (const holding of holdings) holding.untilMs = this.#clock.monotonicMs() + lease.ttlMs
      return { kind: 'held' }
    })
  }

  async release(lease: LeaseRef): Promise<Release> {
    const ours = this.#ownHoldings(lease) !== undefined
    let awaited = 0
    for (const resource of lease.resources) {
      if (this.#holding(resource)?.owner !== lease.owner) continue
      this.#holdings.delete(resource)
      awaited += this.#watchers.wake(resource)
    }
    return { ours, awaited }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    if (this.#ownHoldings(lease) === undefined) return { kind: 'refused', reason: 'held' }
    return this.#grant(next.resources, next.owner, next.ttlMs)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return { armed: Promise.resolve(true), close: this.#watchers.add(resources, freed) }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const names = resource === undefined ? [...this.#holdings.keys()].sort() : [resource]
    for (const name of names) {
      const holding = this.#holding(name)
      if (holding === undefined) continue
      const { owner, token, untilMs } = holding
      yield { resource: name, owner, token, remainingMs: untilMs - this.#clock.monotonicMs() }
    }
  }

  async check(): Promise<readonly Finding[]> {
    return [
      findings('memory').note(
        'one-process',
        'The leases exist in this process only.',
        'Other processes are not excluded, and tokens start again at 1 when this one restarts.',
        'Use another engine as soon as a second process does the same work.',
      ),
    ]
  }

  async close(): Promise<void> {
    this.#watchers.clear()
  }

  #grant(resources: readonly string[], owner: string, ttlMs: number): Grant {
    let token = 0n
    for (const resource of resources) {
      const counter = this.#counters.get(resource) ?? 0n
      if (counter > token) token = counter
    }
    token += 1n
    const untilMs = this.#clock.monotonicMs() + ttlMs
    for (const resource of resources) {
      this.#counters.set(resource, token)
      this.#holdings.set(resource, { owner, token, untilMs })
    }
    return { kind: 'granted', token }
  }

  #holding(resource: string): Holding | undefined {
    const holding = this.#holdings.get(resource)
    if (holding === undefined || holding.untilMs > this.#clock.monotonicMs()) return holding
    this.#holdings.delete(resource)
    return undefined
  }

  #ownHoldings({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): Holding[] | undefined {
    const own: Holding[] = []
    for (const resource of resources) {
      const holding = this.#holding(resource)
      if (holding?.owner !== owner) return undefined
      own.push(holding)
    }
    return own
  }
}
