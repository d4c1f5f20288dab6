import { given, optionsOrThrow } from '../arguments.ts'
import { clockOrThrow, type Clock } from '../clock.ts'
import type {
  Engine,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  Refusal,
  Release,
  Watch,
} from '../engine.ts'
import { findings } from './shared/findings.ts'
import { COME_AGAIN_MS, WANTED_MS } from './shared/wanted.ts'
import { Watchers } from './shared/watchers.ts'

interface MemoryLease {
  readonly owner: string
  readonly token: bigint
  untilMs: number
}

/** Who has a resource: one owner, or several that share it. */
interface Holding {
  readonly shared: boolean
  readonly holders: Map<string, MemoryLease>
}

const GUARANTEES: Guarantees = {
  exclusion: 'one process',
  clock: 'own process',
  token: 'one counter for each resource, as long as the engine exists',
  survives: { serverRestart: 'no', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served in one process',
  shared: true,
}

/** Leases within one process: for tests, for a single instance, and as the reference for other engines. */
export function memory(options: { clock?: Clock } = {}): Engine {
  optionsOrThrow(options, ['clock'])
  return new MemoryEngine(clockOrThrow(options.clock))
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
  /** Until when a writer keeps later readers out, by resource. */
  readonly #wantedUntilMs = new Map<string, number>()
  readonly #watchers = new Watchers()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const own = this.#own(request)
    if (own !== undefined) return { kind: 'granted', token: own[0]!.token }
    return this.#refusal(request) ?? this.#grant(request)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return leases.map((lease) => {
      const own = this.#own(lease)
      if (own === undefined) return { kind: 'lost' }
      for (const holder of own) holder.untilMs = this.#clock.monotonicMs() + lease.ttlMs
      return { kind: 'held' }
    })
  }

  async release(lease: LeaseRef): Promise<Release> {
    const ours = this.#own(lease) !== undefined
    let awaited = 0
    for (const resource of lease.resources) {
      if (!this.#holding(resource)?.holders.delete(lease.owner)) continue
      if (this.#holding(resource) === undefined) awaited += this.#watchers.wake(resource)
    }
    return { ours, awaited }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const isShared = lease.resources.some((resource) => this.#holding(resource)?.shared === true)
    if (isShared || this.#own(lease) === undefined) return { kind: 'refused', reason: 'held' }
    for (const resource of lease.resources) this.#holdings.delete(resource)
    return this.#grant(next)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return { armed: Promise.resolve(true), close: this.#watchers.add(resources, freed) }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const names = resource === undefined ? [...this.#holdings.keys()].sort() : [resource]
    for (const name of names) {
      const { shared, holders } = this.#holding(name) ?? NOBODY
      for (const { owner, token, untilMs } of holders.values()) {
        const remainingMs = untilMs - this.#clock.monotonicMs()
        yield { resource: name, owner, token, remainingMs, ...(shared ? { shared } : {}) }
      }
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

  /** There is no server, and no clock but ours. */
  async probe(): Promise<readonly NodeState[]> {
    return [{ node: this.name, roundTripMs: 0, clockOffsetMs: undefined }]
  }

  async close(): Promise<void> {
    this.#watchers.clear()
  }

  #refusal({ resources, shared = false, waits = false }: LeaseRequest): Refusal | undefined {
    const now = this.#clock.monotonicMs()
    let holder: string | undefined
    let leftMs = 0
    let mostMs = Infinity
    let writerWaits = false
    for (const resource of resources) {
      const holding = this.#holding(resource)
      const isBesideReaders = shared && holding?.shared === true
      if (holding !== undefined && !isBesideReaders) {
        const all = [...holding.holders.values()]
        const last = all.reduce((last, one) => (one.untilMs > last.untilMs ? one : last))
        if (last.untilMs - now > leftMs) [holder, leftMs] = [last.owner, last.untilMs - now]
      } else if (shared && this.#wantedMs(resource) > 0) {
        leftMs = Math.max(leftMs, this.#wantedMs(resource))
        writerWaits = true
      }
      if (holding?.shared !== true || shared || !waits) continue
      this.#wantedUntilMs.set(resource, now + WANTED_MS)
      mostMs = COME_AGAIN_MS
    }
    if (leftMs <= 0) return undefined
    return {
      kind: 'refused',
      reason: 'held',
      remainingMs: Math.min(leftMs, mostMs),
      ...given({ holder }),
      ...(writerWaits && holder === undefined ? { writerWaits } : {}),
    }
  }

  /** How much longer a writer that waits keeps readers out. */
  #wantedMs(resource: string): number {
    const leftMs = (this.#wantedUntilMs.get(resource) ?? -Infinity) - this.#clock.monotonicMs()
    if (leftMs <= 0) this.#wantedUntilMs.delete(resource)
    return leftMs
  }

  /** A reader that joins others gets their number: there was no writer in between. */
  #grant({ resources, owner, ttlMs, shared = false }: LeaseRequest): Grant {
    const counters = resources.map((resource) => this.#counters.get(resource) ?? 0n)
    const highest = counters.reduce((one, other) => (one > other ? one : other))
    const joins = resources.every(
      (resource, index) => counters[index] === highest && this.#holding(resource) !== undefined,
    )
    const token = joins ? highest : highest + 1n
    const untilMs = this.#clock.monotonicMs() + ttlMs
    for (const resource of resources) {
      this.#counters.set(resource, token)
      if (!shared) this.#wantedUntilMs.delete(resource)
      const holding = this.#holding(resource) ?? { shared, holders: new Map<string, MemoryLease>() }
      holding.holders.set(owner, { owner, token, untilMs })
      this.#holdings.set(resource, holding)
    }
    return { kind: 'granted', token }
  }

  #holding(resource: string): Holding | undefined {
    const holding = this.#holdings.get(resource)
    if (holding === undefined) return undefined
    const now = this.#clock.monotonicMs()
    for (const { owner, untilMs } of holding.holders.values()) if (untilMs <= now) holding.holders.delete(owner)
    if (holding.holders.size > 0) return holding
    this.#holdings.delete(resource)
    return undefined
  }

  /** What the owner has of each resource. Undefined if one of them is not its own. */
  #own({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): MemoryLease[] | undefined {
    const own: MemoryLease[] = []
    for (const resource of resources) {
      const holder = this.#holding(resource)?.holders.get(owner)
      if (holder === undefined) return undefined
      own.push(holder)
    }
    return own
  }
}

const NOBODY: Holding = { shared: false, holders: new Map() }
