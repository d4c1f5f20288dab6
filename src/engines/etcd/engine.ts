import type { Clock } from '../../clock.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { reasonOf } from '../http/endpoints.ts'
import { together } from '../http/together.ts'
import { checkEtcd } from './doctor.ts'
import { base64, created, EtcdError, put, within, type Gateway, type KeyValue } from './gateway.ts'
import { inspectEtcd } from './inspect.ts'
import { leaseIdOf, parseValue, secondsOf, valueText, type Keys } from './keys.ts'
import { etcdLeases, type EtcdLeases } from './leases.ts'
import { prove, RENEWALS_AT_ONCE, type Proof } from './proof.ts'
import { waitInLine } from './queue.ts'
import { Undoing } from '../http/undoing.ts'

export interface EtcdPlan {
  readonly gateway: Gateway
  readonly keys: Keys
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  readonly loggedIn: boolean
  readonly timeoutMs: (ttlMs: number) => number
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the revision of the cluster at which the request's keys were created",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served by process',
}

/** For questions that are about no lease. */
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
    driftMs: (ttlMs) => Math.ceil(ttlMs * 0.01) + 2,
  }
  readonly #plan: EtcdPlan
  readonly #gateway: Gateway
  readonly #keys: Keys
  readonly #leases: EtcdLeases
  readonly #undoing: Undoing

  constructor(plan: EtcdPlan) {
    this.identity = `etcd:${plan.prefix}`
    this.#plan = plan
    this.#gateway = plan.gateway
    this.#keys = plan.keys
    this.#leases = etcdLeases(plan.gateway)
    this.#undoing = new Undoing(plan.clock)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return this.#told(request.resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(request.ttlMs)
      // Looked at first, because a transaction needs an etcd lease: an attempt that is refused writes nothing.
      const { found } = await this.#gateway.read(this.#firsts(request.resources), timeoutMs)
      const outcome = this.#judge(request, found)
      if (outcome === undefined) return this.#take(request, timeoutMs)
      if (outcome.kind === 'refused') return this.#refusal(outcome.by, timeoutMs)
      // Granted before; this call's validity counts from now, so the servers must count from now too.
      const [proof] = await prove(
        this.#gateway,
        this.#leases,
        [{ ...request, token: outcome.token }],
        this.#keys,
        timeoutMs,
      )
      if (proof!.kind === 'unknown') throw proof!.cause
      return proof!.kind === 'held' ? { kind: 'granted', token: outcome.token } : { kind: 'refused', reason: 'split' }
    })
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const timeoutMs = this.#plan.timeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs)))
    const proofs = await prove(this.#gateway, this.#leases, leases, this.#keys, timeoutMs)
    const pairs = leases.map((lease, index) => ({ lease, proof: proofs[index]! }))
    return together(pairs, RENEWALS_AT_ONCE, ({ lease, proof }) => this.#settle(lease, proof, timeoutMs))
  }

  release({ resources, owner, ttlMs }: LeaseRef): Promise<Release> {
    return this.#told(resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      const { found } = await this.#gateway.read(this.#firsts(resources), timeoutMs)
      const own = this.#keys.own(resources, owner)
      const firsts = found.map(([first]) => first)
      const mine = firsts.filter((first, index) => first?.key === own[index])
      // A place that was only waited in, and a lease that was never heard of, have the id that they began with.
      const ids = new Set([...mine.map((each) => each!.lease), leaseIdOf(owner, secondsOf(ttlMs))])
      const ended = await Promise.all([...ids].map((id) => this.#leases.revoke(id, timeoutMs)))
      const ours = mine.length === resources.length && ended[0] === true
      // Nobody needs to be let go first: the servers' own queue does that.
      return { ours, awaited: 0 }
    })
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const { resources, owner, ttlMs } = request
    const timeoutMs = this.#plan.timeoutMs(ttlMs)
    const line = { ...this.#plan, leases: this.#leases, timeoutMs }
    try {
      return await waitInLine(line, request, signal)
    } catch (error) {
      const id = leaseIdOf(owner, secondsOf(ttlMs))
      await this.#undoing.now(() => this.#leases.revoke(id, timeoutMs), ttlMs)
      if (signal.aborted) throw signal.reason
      throw asEngineError(error, resources)
    }
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const timeoutMs = this.#plan.timeoutMs(ASK_TTL_MS)
    return inspectEtcd({ ...this.#plan, leases: this.#leases, timeoutMs }, resource)
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkEtcd(this, { ...this.#plan, leases: this.#leases, timeoutMs: this.#plan.timeoutMs(ttlMs) }, ttlMs)
  }

  async close(): Promise<void> {
    await this.#undoing.close()
    this.#gateway.endpoints.close()
  }

  /** The one who has each resource. */
  #firsts(resources: readonly string[]): object[] {
    return resources.map((resource) => ({
      ...within(this.#keys.folder(resource)),
      sort_target: 'CREATE',
      sort_order: 'ASCEND',
      limit: '1',
    }))
  }

  /** Undefined when all are free. */
  #judge(
    { resources, owner }: LeaseRequest,
    found: readonly KeyValue[][],
  ): { kind: 'granted'; token: bigint } | { kind: 'refused'; by: KeyValue } | undefined {
    const own = this.#keys.own(resources, owner)
    const firsts = found.map(([first]) => first)
    const other = firsts.find((first, index) => first !== undefined && first.key !== own[index])
    if (other !== undefined) return { kind: 'refused', by: other }
    const mine = firsts.find((first) => first !== undefined)
    return mine === undefined ? undefined : { kind: 'granted', token: mine.createRevision }
  }

  async #take(request: LeaseRequest, timeoutMs: number): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    const id = leaseIdOf(owner, secondsOf(ttlMs))
    const undo = (): Promise<boolean> => this.#leases.revoke(id, timeoutMs)
    try {
      await this.#leases.grant(id, secondsOf(ttlMs), timeoutMs)
      const value = valueText({ ttlMs, sinceMs: this.#plan.clock.wallMs() })
      const { header, succeeded, results } = await this.#gateway.transact(
        // Nobody has them, and nobody waits for them either.
        resources.map((resource) => created(within(this.#keys.folder(resource)), '0')),
        this.#keys.own(resources, owner).map((key) => put(key, value, id)),
        this.#firsts(resources).map((range) => ({ request_range: range })),
        timeoutMs,
      )
      if (succeeded) return { kind: 'granted', token: header.revision }
      // The keys may be our own: sent before to a member that did not answer in time.
      const outcome = this.#judge(request, results)
      if (outcome?.kind === 'granted') return outcome
      await this.#undoing.now(undo, ttlMs)
      return outcome === undefined ? { kind: 'refused', reason: 'split' } : await this.#refusal(outcome.by, timeoutMs)
    } catch (error) {
      // What the servers did is unknown. With the etcd lease goes the key, and a transaction that comes late finds none.
      this.#undoing.later(undo, ttlMs)
      throw error
    }
  }

  async #refusal(by: KeyValue, timeoutMs: number): Promise<Refusal> {
    const holder = this.#keys.parse(by.key)?.owner
    const remainingMs = by.lease === '0' ? undefined : ((await this.#leases.remainingMs(by.lease, timeoutMs)) ?? 0)
    return {
      kind: 'refused',
      reason: 'held',
      ...(holder === undefined ? {} : { holder }),
      ...(remainingMs === undefined ? {} : { remainingMs }),
    }
  }

  async #settle(lease: LeaseRef, proof: Proof, timeoutMs: number): Promise<Extension> {
    if (proof.kind !== 'otherTtl') return proof
    try {
      return await this.#changeTtl(lease, proof.found, timeoutMs)
    } catch (error) {
      return { kind: 'unknown', cause: asEngineError(error, lease.resources) }
    }
  }

  /** An etcd lease's time can't be changed: the keys are bound to another one, which does not touch their create revision. */
  async #changeTtl({ resources, owner, token, ttlMs }: LeaseRef, old: KeyValue, timeoutMs: number): Promise<Extension> {
    const id = leaseIdOf(owner, secondsOf(ttlMs))
    const own = this.#keys.own(resources, owner)
    await this.#leases.grant(id, secondsOf(ttlMs), timeoutMs)
    const value = valueText({ ...parseValue(old.value), ttlMs })
    const { succeeded } = await this.#gateway.transact(
      own.map((key) => created({ key: base64(key) }, String(token))),
      own.map((key) => put(key, value, id)),
      [],
      timeoutMs,
    )
    // The old one has no keys any more and is left to its end. To revoke it could hit the keys, if that landed late and the
    // ttl had been changed back meanwhile: the same ttl has the same id.
    if (succeeded) return { kind: 'held' }
    this.#undoing.later(() => this.#leases.revoke(id, timeoutMs), ttlMs)
    return { kind: 'lost' }
  }

  async #told<T>(resources: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw asEngineError(error, resources)
    }
  }
}

function asEngineError(error: unknown, resources: readonly string[]): EngineError {
  if (error instanceof EngineError) return error
  const transient = error instanceof EtcdError ? error.transient : true
  return new EngineError(`etcd: ${reasonOf(error)}`, resources, { cause: error, transient })
}
