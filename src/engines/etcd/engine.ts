import { given } from '../../arguments.ts'
import type { Clock } from '../../clock.ts'
import type {
  AdoptedGrant,
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import type { Random } from '../../random.ts'
import { Cleanup } from '../shared/cleanup.ts'
import { KeptPlaces } from '../shared/kept-places.ts'
import { together } from '../shared/together.ts'
import { driftOrThrow } from '../shared/limits.ts'
import { inRounds } from '../shared/next-round.ts'
import type { EtcdClient, EtcdKeyValue } from './client.ts'
import { checkEtcd, probeEtcd } from './doctor.ts'
import { etcdFailure } from './errors.ts'
import { inspectEtcd } from './inspect.ts'
import { ownLeaseId, parseValue, type EtcdKeys } from './keys.ts'
import { waitInQueue, type EtcdPlace } from './queue.ts'
import { EtcdSteps, RENEWALS_AT_ONCE, type EtcdProof } from './steps.ts'

export interface EtcdPlan {
  readonly client: EtcdClient
  readonly keys: EtcdKeys
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  readonly loggedIn: boolean
  readonly timeoutMs: (ttlMs: number) => number
}

/** What one call of the engine works with. */
export interface EtcdCall extends Omit<EtcdPlan, 'timeoutMs'> {
  readonly steps: EtcdSteps
  readonly timeoutMs: number
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the revision of the cluster at which the request's keys were created",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served by process',
  shared: true,
}

/** Sets the timeout of requests that concern no lease. */
const ASK_TTL_MS = 10_000

export class EtcdEngine implements Engine {
  readonly name = 'etcd'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits = {
    // etcd refuses more.
    maxTtlMs: 9_000_000_000_000,
    minTtlMs: 1000,
    shorter: 'etcd counts the time of a lease in whole seconds',
    driftMs: driftOrThrow(),
  }
  readonly #plan: EtcdPlan
  readonly #steps: EtcdSteps
  readonly #cleanup: Cleanup
  readonly #kept: KeptPlaces<EtcdPlace>

  constructor(plan: EtcdPlan) {
    this.identity = `etcd:${plan.prefix}`
    this.#plan = plan
    this.#steps = new EtcdSteps(plan.client, plan.keys)
    this.#cleanup = new Cleanup(plan.clock)
    this.#kept = new KeptPlaces(plan.clock, (place) => this.#cleanup.later(() => this.#giveUp(place), place.ttlMs))
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const outcome = await inRounds(this.#plan.clock, request, () => this.#acquire(request))
    // A reader may be granted beside the place that was kept for it.
    if (outcome.kind === 'granted') this.#kept.drop(request)
    return outcome
  }

  #acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return this.#withFailures(request.resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(request.ttlMs)
      // Read first, because a transaction needs an etcd lease: an attempt that is refused writes nothing.
      const owned = await this.#steps.ownership(request, timeoutMs)
      if (owned.kind === 'free') return this.#take(request, timeoutMs)
      if (owned.kind === 'taken') return this.#refusal(owned.by, timeoutMs)
      // It was granted before. This call's validity counts from now, so the servers must count from now, too.
      const [proof] = await this.#steps.prove([{ ...request, token: owned.token }], timeoutMs)
      if (proof!.kind === 'unknown') throw proof!.cause
      return proof!.kind === 'held' ? { kind: 'granted', token: owned.token } : { kind: 'refused', reason: 'split' }
    })
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const timeoutMs = this.#plan.timeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs)))
    const proofs = await this.#steps.prove(leases, timeoutMs)
    const pairs = leases.map((lease, index) => ({ lease, proof: proofs[index]! }))
    return together(pairs, RENEWALS_AT_ONCE, ({ lease, proof }) => this.#settle(lease, proof, timeoutMs))
  }

  release(ref: LeaseRef): Promise<Release> {
    const { resources, ttlMs } = ref
    return this.#withFailures(resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      const mine = await this.#steps.held(ref, timeoutMs)
      // A place in the queue, and a lease whose grant was never answered, have the id that they began with.
      const ids = new Set([...mine.map(({ lease }) => lease), ownLeaseId(ref)])
      const ended = await Promise.all([...ids].map((id) => this.#steps.revoke(id, timeoutMs)))
      const ours = mine.length === resources.length && ended[0] === true
      // The servers' own queue decides who is next, so this process need not hold back.
      return { ours, awaited: 0 }
    })
  }

  /**
   * The owner is in the name of its keys, and the place of these in the queue is the token. New keys would be behind those who
   * wait. So the lease is only proved: it keeps its owner and its token.
   */
  async adopt(lease: LeaseRef, { ttlMs }: LeaseRequest): Promise<AdoptedGrant | Refusal> {
    const [answer] = await this.extend([{ ...lease, ttlMs }])
    if (answer!.kind === 'unknown') {
      // Its holder may go on, and counts on the time that it had.
      if (ttlMs !== lease.ttlMs) this.#cleanup.later(() => this.#proved(lease), ttlMs)
      throw etcdFailure(answer!.cause, lease.resources)
    }
    if (answer!.kind === 'lost') return { kind: 'refused', reason: 'held' }
    return { kind: 'granted', token: lease.token, owner: lease.owner }
  }

  async #proved(lease: LeaseRef): Promise<void> {
    const [answer] = await this.extend([lease])
    if (answer!.kind === 'unknown') throw answer!.cause
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const place: EtcdPlace = this.#kept.take(request) ?? { ...request }
    try {
      const grant = await waitInQueue(this.#call(request.ttlMs), place, signal, request.failing)
      return { ...grant, owner: place.owner }
    } catch (error) {
      const isKept = signal.aborted && place.token !== undefined && request.hasHeir?.() === true
      if (isKept) this.#kept.keep(request, place)
      else await this.#cleanup.now(() => this.#giveUp(place), request.ttlMs)
      if (signal.aborted) throw signal.reason
      throw etcdFailure(error, request.resources)
    }
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    return inspectEtcd(this.#call(ASK_TTL_MS), resource)
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkEtcd(this, this.#call(ttlMs), ttlMs)
  }

  probe(): Promise<readonly NodeState[]> {
    return probeEtcd(this.#call(ASK_TTL_MS))
  }

  async close(): Promise<void> {
    this.#kept.close()
    await this.#cleanup.close()
    this.#plan.client.endpoints.close()
  }

  #giveUp(place: EtcdPlace): Promise<boolean> {
    return this.#steps.revoke(ownLeaseId(place), this.#plan.timeoutMs(place.ttlMs))
  }

  #call(ttlMs: number): EtcdCall {
    return { ...this.#plan, steps: this.#steps, timeoutMs: this.#plan.timeoutMs(ttlMs) }
  }

  async #take(request: LeaseRequest, timeoutMs: number): Promise<Grant | Refusal> {
    const { ttlMs } = request
    const undo = (): Promise<boolean> => this.#steps.revoke(ownLeaseId(request), timeoutMs)
    try {
      await this.#steps.grantLease(request, timeoutMs)
      const owned = await this.#steps.take(request, { ttlMs, sinceMs: this.#plan.clock.wallMs() }, timeoutMs)
      if (owned.kind === 'own') return { kind: 'granted', token: owned.token }
      await this.#cleanup.now(undo, ttlMs)
      return owned.kind === 'free' ? { kind: 'refused', reason: 'split' } : await this.#refusal(owned.by, timeoutMs)
    } catch (error) {
      // What the servers did is unknown. The key goes with the etcd lease, and a transaction that arrives late finds no lease.
      this.#cleanup.later(undo, ttlMs)
      throw error
    }
  }

  async #refusal(by: EtcdKeyValue, timeoutMs: number): Promise<Refusal> {
    const holder = this.#plan.keys.parse(by.key)?.owner
    const remainingMs = by.lease === '0' ? undefined : ((await this.#steps.remainingMs(by.lease, timeoutMs)) ?? 0)
    return { kind: 'refused', reason: 'held', ...given({ holder, remainingMs }) }
  }

  async #settle(lease: LeaseRef, proof: EtcdProof, timeoutMs: number): Promise<Extension> {
    if (proof.kind !== 'otherTtl') return proof
    try {
      return await this.#changeTtl(lease, proof.found, timeoutMs)
    } catch (error) {
      return { kind: 'unknown', cause: etcdFailure(error, lease.resources) }
    }
  }

  /** The time of an etcd lease cannot be changed, so the keys are bound to another one. */
  async #changeTtl(lease: LeaseRef, old: EtcdKeyValue, timeoutMs: number): Promise<Extension> {
    const { ttlMs } = lease
    await this.#steps.grantLease(lease, timeoutMs)
    // The old one has no keys after this and ends by itself. Revoking it could hit the keys, if the request arrived late and the
    // ttl had been changed back meanwhile: the same ttl has the same id.
    if (await this.#steps.rebind(lease, { ...parseValue(old.value), ttlMs }, timeoutMs)) return { kind: 'held' }
    this.#cleanup.later(() => this.#steps.revoke(ownLeaseId(lease), timeoutMs), ttlMs)
    return { kind: 'lost' }
  }

  /** Failures become `EngineError`s. */
  async #withFailures<T>(resources: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw etcdFailure(error, resources)
    }
  }
}
