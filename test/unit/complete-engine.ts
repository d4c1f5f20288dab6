import { instant, systemClock } from '../../src/clock.ts'
import type {
  Engine,
  Extension,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  QueuedGrant,
  RoundTrip,
} from '../../src/engine.ts'
import { memory } from '../../src/engines/memory.ts'
import { EngineError } from '../../src/errors.ts'

/** What all engines on one store share: as the server would have it. */
export interface Store {
  readonly engine: Engine
  readonly queue: { readonly request: LeaseRequest; readonly since: number; serve: () => void }[]
}

export function newStore(): Store {
  return { engine: memory(), queue: [] }
}

/** The memory engine with every optional method there is, and without shared leases. */
export class CompleteEngine implements Engine {
  readonly name = 'complete'
  readonly identity: string = 'complete'
  readonly guarantees: Engine['guarantees']
  readonly limits: Engine['limits']
  readonly store: Store
  readonly prove = new Set<() => void>()
  #tell: ((event: RoundTrip) => void) | undefined

  constructor(store: Store) {
    this.store = store
    this.guarantees = { ...store.engine.guarantees, shared: false }
    this.limits = store.engine.limits
  }

  acquire(request: LeaseRequest): ReturnType<Engine['acquire']> {
    return this.#trip('acquire', this.store.engine.acquire(request))
  }

  extend(leases: readonly LeaseRef[]): ReturnType<Engine['extend']> {
    return this.#trip('extend', this.store.engine.extend(leases))
  }

  async release(lease: LeaseRef): ReturnType<Engine['release']> {
    const released = await this.#trip('release', this.store.engine.release(lease))
    for (const { serve } of this.store.queue) serve()
    return released
  }

  handOver(lease: LeaseRef, next: LeaseRequest): ReturnType<NonNullable<Engine['handOver']>> {
    return this.store.engine.handOver!(lease, next)
  }

  adopt(lease: LeaseRef, next: LeaseRequest): ReturnType<NonNullable<Engine['adopt']>> {
    return this.store.engine.handOver!(lease, next)
  }

  async leave(lease: LeaseRef): Promise<Extension> {
    return (await this.extend([lease]))[0]!
  }

  watch(resources: readonly string[], freed: () => void): ReturnType<NonNullable<Engine['watch']>> {
    return this.store.engine.watch!(resources, freed)
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const { queue } = this.store
    signal.throwIfAborted()
    const place = { request, since: systemClock.wallMs(), serve: (): void => undefined }
    queue.push(place)
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error))
    })
    aborted.catch(() => undefined)
    try {
      for (;;) {
        const since = instant(systemClock)
        const served = new Promise<void>((resolve) => (place.serve = resolve))
        const isBehind = queue.slice(0, queue.indexOf(place)).some((other) => isRival(other.request, request))
        const outcome = isBehind ? undefined : await this.store.engine.acquire(request)
        if (outcome?.kind === 'granted') return { ...outcome, since }
        await Promise.race([served, aborted])
      }
    } finally {
      queue.splice(queue.indexOf(place), 1)
      for (const { serve } of queue) serve()
    }
  }

  onDoubt(prove: () => void): void {
    this.prove.add(prove)
  }

  observe(tell: (event: RoundTrip) => void): void {
    this.#tell = tell
  }

  unanswered({ resources }: Pick<LeaseRequest, 'resources' | 'ttlMs'>): Error {
    return new EngineError('No server answered.', resources)
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    for await (const info of this.store.engine.inspect(resource)) {
      const places = this.store.queue.filter(({ request }) => request.resources.includes(info.resource))
      const line = places.map(({ request, since }) => ({ owner: request.owner, since }))
      yield { ...info, waiters: line.length, ...(line.length > 0 && { line }) }
    }
  }

  check(ttlMs: number): ReturnType<Engine['check']> {
    return this.store.engine.check(ttlMs)
  }

  async probe(): Promise<readonly NodeState[]> {
    return [{ node: 'here', roundTripMs: 0, clockOffsetMs: 0 }]
  }

  async init(): Promise<readonly string[]> {
    return ['Nothing has to be created.']
  }

  async close(): Promise<void> {
    this.prove.clear()
  }

  async #trip<T>(operation: string, work: Promise<T>): Promise<T> {
    const answer = await work
    this.#tell?.({ type: 'roundTrip', node: 'here', operation, outcome: 'answered', tookMs: 0 })
    return answer
  }
}

/** The same with shared leases: a writer in the queue keeps later readers out. */
export class SharingEngine extends CompleteEngine {
  override readonly guarantees = this.store.engine.guarantees

  override async acquire(request: LeaseRequest): ReturnType<Engine['acquire']> {
    const isBehind = this.store.queue.some((place) => request.shared === true && isRival(place.request, request))
    if (isBehind) return { kind: 'refused', reason: 'held' }
    // The queue is how a writer waits.
    return super.acquire({ ...request, waits: false })
  }
}

function isRival(one: LeaseRequest, other: LeaseRequest): boolean {
  if (one.shared === true && other.shared === true) return false
  return one.resources.some((resource) => other.resources.includes(resource))
}
