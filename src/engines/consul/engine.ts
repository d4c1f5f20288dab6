import { given } from '../../arguments.ts'
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
  NodeState,
  Refusal,
  Release,
  Watch,
} from '../../engine.ts'
import type { Random } from '../../random.ts'
import { Cleanup } from '../shared/cleanup.ts'
import { together } from '../shared/together.ts'
import { driftOrThrow } from '../shared/limits.ts'
import { inRounds } from '../shared/next-round.ts'
import type { ConsulClient, ConsulEntry } from './client.ts'
import { checkConsul, probeConsul } from './doctor.ts'
import { consulFailure } from './errors.ts'
import { inspectConsul } from './inspect.ts'
import { parseValue, type ConsulValue } from './keys.ts'
import { ConsulSteps, isOf, ownEntries } from './steps.ts'
import { ConsulWakeups } from './wakeups.ts'

export interface ConsulPlan {
  readonly client: ConsulClient
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  /** The catalog node that sessions belong to; undefined for the agent's own. */
  readonly node: string | undefined
  readonly minTtlMs: number
  /** For this long nobody gets what a session held that ended by itself. */
  readonly lockDelayMs: (ttlMs: number) => number
  readonly timeoutMs: (ttlMs: number) => number
}

/** What one call of the engine works with. */
export interface ConsulCall extends Omit<ConsulPlan, 'timeoutMs'> {
  readonly timeoutMs: number
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the index of the servers' log at which the lock's keys were created",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served in one process',
  shared: false,
}

/** Consul takes 64 operations in a transaction, and a lock needs two operations for each resource. */
const MOST_RESOURCES = 32
/** To move one takes three operations for each resource. */
const MOST_ADOPTED = 21
/** How many renewals are under way at a time: each is two requests. A server takes 200 connections from one machine. */
const RENEWALS_AT_ONCE = 16
/** Sets the timeout of requests that concern no lease. */
const ASK_TTL_MS = 10_000

export class ConsulEngine implements Engine {
  readonly name = 'consul'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #plan: ConsulPlan
  readonly #client: ConsulClient
  readonly #steps: ConsulSteps
  readonly #cleanup: Cleanup
  readonly #wakeups: ConsulWakeups

  constructor(plan: ConsulPlan) {
    this.identity = `consul:${plan.prefix}`
    this.limits = {
      // Consul refuses more.
      maxTtlMs: 86_400_000,
      minTtlMs: plan.minTtlMs,
      shorter:
        'Consul keeps no shorter session unless session_ttl_min on its servers says so; then set consul(url, { sessionTtlMin }) to the same',
      driftMs: driftOrThrow(),
    }
    this.#plan = plan
    this.#client = plan.client
    this.#steps = new ConsulSteps(plan)
    this.#cleanup = new Cleanup(plan.clock)
    this.#wakeups = new ConsulWakeups(plan)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return inRounds(this.#plan.clock, request, () => this.#acquire(request))
  }

  #acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    return this.#withFailures(resources, async () => {
      if (resources.length > MOST_RESOURCES) {
        throw new RangeError(
          `resource: expected at most ${MOST_RESOURCES} names at once, which is what fits in one transaction of Consul, got ${resources.length}; take one name for all of them`,
        )
      }
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      // Read first, because a transaction needs a session: an attempt that is refused writes nothing.
      const found = await this.#steps.read(resources, timeoutMs)
      if (found.every((entry) => entry === undefined))
        return this.#take(request, timeoutMs, (session, value) =>
          this.#steps.take(resources, session, value, timeoutMs),
        )
      const own = ownEntries(found, owner)
      if (own === undefined) return refusal(found, owner)
      // It was granted before. This call's validity counts from now, so the servers must count from now, too.
      if (await this.#client.renewSession(own[0]!.session!, timeoutMs))
        return { kind: 'granted', token: own[0]!.createIndex }
      return { kind: 'refused', reason: 'split' }
    })
  }

  extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const timeoutMs = this.#plan.timeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs)))
    return together(leases, RENEWALS_AT_ONCE, async (lease) => {
      try {
        return await this.#renew(lease, timeoutMs)
      } catch (error) {
        return { kind: 'unknown', cause: consulFailure(error, lease.resources) }
      }
    })
  }

  release({ resources, owner, ttlMs }: LeaseRef): Promise<Release> {
    return this.#withFailures(resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      const found = await this.#steps.read(resources, timeoutMs)
      const mine = found.filter((entry) => entry !== undefined && isOf(entry, owner)) as ConsulEntry[]
      if (mine.length === 0) return { ours: false, awaited: 0 }
      const session = mine[0]!.session!
      const done = await this.#steps.free(
        mine.map(({ key }) => key),
        session,
        timeoutMs,
      )
      await this.#cleanup.now(() => this.#client.destroySession(session, timeoutMs), ttlMs)
      return { ours: done && mine.length === resources.length, awaited: 0 }
    })
  }

  /** Not `handOver`: a session of its own for each waiter of a process costs more than a release. */
  adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner } = lease
    return this.#withFailures(resources, async () => {
      if (resources.length > MOST_ADOPTED) {
        throw new RangeError(
          `lease.resources: expected at most ${MOST_ADOPTED} names, which is what one transaction of Consul can move, got ${resources.length}; release the lease there and acquire it here`,
        )
      }
      const timeoutMs = this.#plan.timeoutMs(next.ttlMs)
      const own = ownEntries(await this.#steps.read(resources, timeoutMs), owner)
      if (own === undefined || areEarlier(own, lease)) return { kind: 'refused', reason: 'held' }
      // The old owner may go on, so of an unknown outcome the keys go back to its session, with what they said.
      const giveBack = async (session: string): Promise<void> => {
        const [{ session: old, value }] = own as [ConsulEntry]
        const adopted = own.map((entry) => ({ ...entry, session }))
        const token = await this.#steps.replace(adopted, old!, parseValue(value)!, timeoutMs)
        if (token !== undefined) await this.#client.renewSession(old!, timeoutMs)
      }
      const outcome = await this.#take(
        next,
        timeoutMs,
        (session, value) => this.#steps.replace(own, session, value, timeoutMs),
        giveBack,
      )
      if (outcome.kind === 'granted')
        this.#cleanup.later(() => this.#client.destroySession(own[0]!.session!, timeoutMs), next.ttlMs)
      return outcome
    })
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#wakeups.open(
      resources.map((resource) => this.#steps.key(resource)),
      freed,
    )
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    return inspectConsul(this.#call(ASK_TTL_MS), resource)
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkConsul(this, this.#call(ttlMs), ttlMs)
  }

  probe(): Promise<readonly NodeState[]> {
    return probeConsul(this.#call(ASK_TTL_MS))
  }

  async close(): Promise<void> {
    this.#wakeups.close()
    await this.#cleanup.close()
    this.#client.endpoints.close()
  }

  #call(ttlMs: number): ConsulCall {
    return { ...this.#plan, timeoutMs: this.#plan.timeoutMs(ttlMs) }
  }

  async #take(
    { resources, owner, ttlMs }: LeaseRequest,
    timeoutMs: number,
    take: (session: string, value: ConsulValue) => Promise<bigint | undefined>,
    untake?: (session: string) => Promise<void>,
  ): Promise<Grant | Refusal> {
    // A session whose answer is lost has locked nothing, and ends by itself.
    const session = await this.#steps.createSession(owner, ttlMs, timeoutMs)
    const free = async (): Promise<unknown> => {
      const keys = resources.map((resource) => this.#steps.key(resource))
      return this.#steps.free(keys, session, timeoutMs)
    }
    const undo = async (): Promise<void> => {
      // The keys first: those that end with their session have a lock-delay.
      await (untake === undefined ? free() : untake(session))
      await this.#client.destroySession(session, timeoutMs)
    }
    try {
      const value = { owner, ttlMs, sinceMs: this.#plan.clock.wallMs() }
      const token = await take(session, value)
      if (token !== undefined) return { kind: 'granted', token }
      const found = await this.#steps.read(resources, timeoutMs)
      // The keys may be our own, sent before to a server that did not answer in time.
      const own = ownEntries(found, owner)
      if (own !== undefined) return { kind: 'granted', token: own[0]!.createIndex }
      await this.#cleanup.now(undo, ttlMs)
      return refusal(found, owner)
    } catch (error) {
      // What the servers did is unknown. A lock that arrives after the end of its session is refused.
      this.#cleanup.later(undo, ttlMs)
      throw error
    }
  }

  /**
   * Reads the keys first, then renews the session. If it can be renewed it had not ended before, and the keys were its own all
   * the time. The leader only sets its own timer, so a leader that was replaced and does not know it could answer, too. But
   * Consul's timers run for twice the ttl, and nobody counts on a renewal that came after the end of the one before.
   */
  async #renew(lease: LeaseRef, timeoutMs: number): Promise<Extension> {
    const own = ownEntries(await this.#steps.read(lease.resources, timeoutMs), lease.owner)
    if (own === undefined || areEarlier(own, lease)) return { kind: 'lost' }
    const value = parseValue(own[0]!.value)!
    if (value.ttlMs !== lease.ttlMs) return this.#changeTtl(lease, own, value, timeoutMs)
    return { kind: (await this.#client.renewSession(own[0]!.session!, timeoutMs)) ? 'held' : 'lost' }
  }

  /** The time of a session cannot be changed, so the keys go to another session. */
  async #changeTtl(
    lease: LeaseRef,
    own: readonly ConsulEntry[],
    old: ConsulValue,
    timeoutMs: number,
  ): Promise<Extension> {
    const { owner, ttlMs, resources } = lease
    const [oldSession, session] = [own[0]!.session!, await this.#steps.createSession(owner, ttlMs, timeoutMs)]
    let done = await this.#steps.move(own, session, { ...old, ttlMs }, timeoutMs)
    // Perhaps it was done before, and that answer was lost.
    if (!done) done = ownEntries(await this.#steps.read(resources, timeoutMs), owner)?.[0]!.session === session
    this.#cleanup.later(() => this.#client.destroySession(done ? oldSession : session, timeoutMs), ttlMs)
    return { kind: done ? 'held' : 'lost' }
  }

  /** Failures become `EngineError`s. */
  async #withFailures<T>(resources: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw error instanceof RangeError ? error : consulFailure(error, resources)
    }
  }
}

/** Not the keys that this lease was granted. They are greater where an adoption was given back, and lower never. */
function areEarlier(own: readonly ConsulEntry[], { token }: LeaseRef): boolean {
  return own.some(({ createIndex }) => createIndex < token)
}

function refusal(found: readonly (ConsulEntry | undefined)[], owner: string): Refusal {
  const other = found.find((entry) => entry !== undefined && !isOf(entry, owner))
  // There may be no holder: it is gone by now, or its session has ended and the lock-delay runs.
  const value = other && parseValue(other.value)
  const remainingMs = other?.session === undefined ? undefined : value?.ttlMs
  return { kind: 'refused', reason: 'held', ...given({ holder: value?.owner, remainingMs }) }
}
