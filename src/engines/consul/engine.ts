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
  Refusal,
  Release,
  Watch,
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { reasonOf } from '../http/endpoints.ts'
import { together } from '../http/together.ts'
import { Undoing } from '../http/undoing.ts'
import { base64, ConsulError, type ConsulClient, type Entry, type Operation } from './client.ts'
import { checkConsul } from './doctor.ts'
import { keyOf, parseValue, resourceOf, valueText, type Value } from './keys.ts'
import { Watches } from './watches.ts'

export interface ConsulPlan {
  readonly client: ConsulClient
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  /** The catalog node that sessions belong to; undefined for the agent's own. */
  readonly node: string | undefined
  readonly minTtlMs: number
  /** How long nobody gets what a session had that ended by itself. */
  readonly lockDelayMs: (ttlMs: number) => number
  readonly timeoutMs: (ttlMs: number) => number
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: "the index of the servers' log at which the lock's keys were created",
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served in one process',
}

/** Consul takes 64 operations in a transaction, and a lock needs two for each resource. */
const MOST_RESOURCES = 32
/** Renewals under way at a time: each is two requests. A server takes 200 connections from one machine. */
const RENEWALS_AT_ONCE = 16
/** For questions that are about no lease. */
const ASK_TTL_MS = 10_000

export class ConsulEngine implements Engine {
  readonly name = 'consul'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #plan: ConsulPlan
  readonly #client: ConsulClient
  readonly #undoing: Undoing
  readonly #watches: Watches

  constructor(plan: ConsulPlan) {
    this.identity = `consul:${plan.prefix}`
    this.limits = {
      // Consul refuses more.
      maxTtlMs: 86_400_000,
      minTtlMs: plan.minTtlMs,
      shorter:
        'Consul keeps no shorter session unless its servers are told so with session_ttl_min; then say so with consul(url, { sessionTtlMin })',
      driftMs: (ttlMs) => Math.ceil(ttlMs * 0.01) + 2,
    }
    this.#plan = plan
    this.#client = plan.client
    this.#undoing = new Undoing(plan.clock)
    this.#watches = new Watches(plan)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    return this.#told(resources, async () => {
      if (resources.length > MOST_RESOURCES) {
        throw new RangeError(
          `resource: expected at most ${MOST_RESOURCES} names at once, which is what fits in a transaction of Consul's, got ${resources.length}`,
        )
      }
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      // Looked at first, because a transaction needs a session: an attempt that is refused writes nothing.
      const found = await this.#read(resources, timeoutMs)
      if (found.every((entry) => entry === undefined)) return this.#take(request, timeoutMs)
      const own = ownEntries(found, owner)
      if (own === undefined) return refusal(found, owner)
      // Granted before; this call's validity counts from now, so the servers must count from now too.
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
        return { kind: 'unknown', cause: asEngineError(error, lease.resources) }
      }
    })
  }

  release({ resources, owner, ttlMs }: LeaseRef): Promise<Release> {
    return this.#told(resources, async () => {
      const timeoutMs = this.#plan.timeoutMs(ttlMs)
      const found = await this.#read(resources, timeoutMs)
      const mine = found.filter((entry) => entry !== undefined && isOf(entry, owner)) as Entry[]
      if (mine.length === 0) return { ours: false, awaited: 0 }
      const session = mine[0]!.session!
      const done = await this.#free(
        mine.map(({ key }) => key),
        session,
        timeoutMs,
      )
      await this.#undoing.now(() => this.#client.destroySession(session, timeoutMs), ttlMs)
      return { ours: done && mine.length === resources.length, awaited: 0 }
    })
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#watches.open(
      resources.map((resource) => this.#key(resource)),
      freed,
    )
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const timeoutMs = this.#plan.timeoutMs(ASK_TTL_MS)
    const { prefix } = this.#plan
    const entries = await this.#told(resource === undefined ? [] : [resource], async () => {
      if (resource === undefined) return this.#client.readAll(prefix, timeoutMs)
      return [await this.#client.read(this.#key(resource), timeoutMs)].filter((entry) => entry !== undefined)
    })
    for (const { key, value: text, session, createIndex } of entries) {
      const name = resourceOf(prefix, key)
      if (name === undefined) continue
      const value = parseValue(text)
      yield {
        resource: name,
        owner: value?.owner ?? 'unknown',
        token: createIndex,
        // The servers don't tell when a session was renewed last: this long at most, if they end it in time.
        remainingMs: session === undefined ? undefined : value?.ttlMs,
        // By two machines' clocks, as there is no other way to know.
        ...(value === undefined ? {} : { heldMs: Math.max(0, this.#plan.clock.wallMs() - value.sinceMs) }),
      }
    }
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkConsul(this, { ...this.#plan, timeoutMs: this.#plan.timeoutMs(ttlMs) }, ttlMs)
  }

  async close(): Promise<void> {
    this.#watches.close()
    await this.#undoing.close()
    this.#client.endpoints.close()
  }

  async #take({ resources, owner, ttlMs }: LeaseRequest, timeoutMs: number): Promise<Grant | Refusal> {
    const keys = resources.map((resource) => this.#key(resource))
    // One whose answer is lost has locked nothing, and ends by itself.
    const session = await this.#createSession(owner, ttlMs, timeoutMs)
    const undo = async (): Promise<void> => {
      // First the keys: what a session takes with it is subject to the lock-delay.
      await this.#free(keys, session, timeoutMs)
      await this.#client.destroySession(session, timeoutMs)
    }
    try {
      const value = base64(valueText({ owner, ttlMs, sinceMs: this.#plan.clock.wallMs() }))
      // Only a key that is created by the very transaction has a create index that is a token.
      const operations = keys.flatMap((key) => [
        operation('check-not-exists', key),
        operation('lock', key, { Value: value, Session: session }),
      ])
      const { done, entries } = await this.#client.transact(operations, timeoutMs)
      if (done) return { kind: 'granted', token: entries[0]!.createIndex }
      const found = await this.#read(resources, timeoutMs)
      // The keys may be our own: sent before to a server that did not answer in time.
      const own = ownEntries(found, owner)
      if (own !== undefined) return { kind: 'granted', token: own[0]!.createIndex }
      await this.#undoing.now(undo, ttlMs)
      return refusal(found, owner)
    } catch (error) {
      // What the servers did is unknown. A lock that comes after the end of its session is refused.
      this.#undoing.later(undo, ttlMs)
      throw error
    }
  }

  /**
   * First the keys, then the session: if it could be renewed it had not ended before, and the keys were its own all the
   * time. The leader sets its own timer only, so one that was replaced and does not know could answer too; but Consul's
   * timers run for twice the ttl, and nobody counts on a renewal that came after the end of the one before.
   */
  async #renew(lease: LeaseRef, timeoutMs: number): Promise<Extension> {
    const own = ownEntries(await this.#read(lease.resources, timeoutMs), lease.owner)
    if (own === undefined || own.some(({ createIndex }) => createIndex !== lease.token)) return { kind: 'lost' }
    const value = parseValue(own[0]!.value)!
    if (value.ttlMs !== lease.ttlMs) return this.#changeTtl(lease, own, value, timeoutMs)
    return { kind: (await this.#client.renewSession(own[0]!.session!, timeoutMs)) ? 'held' : 'lost' }
  }

  /** A session's time can't be changed: in one step the keys go to another one, which does not touch their create index. */
  async #changeTtl(lease: LeaseRef, own: readonly Entry[], old: Value, timeoutMs: number): Promise<Extension> {
    const { owner, ttlMs, resources } = lease
    const [oldSession, session] = [own[0]!.session!, await this.#createSession(owner, ttlMs, timeoutMs)]
    const value = base64(valueText({ ...old, ttlMs }))
    const operations = own.flatMap(({ key }) => [
      operation('unlock', key, { Value: value, Session: oldSession }),
      operation('lock', key, { Value: value, Session: session }),
    ])
    let { done } = await this.#client.transact(operations, timeoutMs)
    // Perhaps because it was done before, and that answer was lost.
    if (!done) done = ownEntries(await this.#read(resources, timeoutMs), owner)?.[0]!.session === session
    this.#undoing.later(() => this.#client.destroySession(done ? oldSession : session, timeoutMs), ttlMs)
    return { kind: done ? 'held' : 'lost' }
  }

  #createSession(owner: string, ttlMs: number, timeoutMs: number): Promise<string> {
    const { node, lockDelayMs } = this.#plan
    return this.#client.createSession(
      {
        Name: owner,
        TTL: `${ttlMs}ms`,
        Behavior: 'delete',
        LockDelay: `${lockDelayMs(ttlMs)}ms`,
        // Without the health of the agent's node, which says nothing about us: a holder proves by renewals that it lives.
        Checks: [],
        NodeChecks: [],
        ...(node === undefined ? {} : { Node: node }),
      },
      timeoutMs,
    )
  }

  /** True if all were locked by the session. Deleted and not left to the session's end, so without a lock-delay. */
  async #free(keys: readonly string[], session: string, timeoutMs: number): Promise<boolean> {
    const operations = keys.flatMap((key) => [
      operation('check-session', key, { Session: session }),
      operation('delete', key),
    ])
    return (await this.#client.transact(operations, timeoutMs)).done
  }

  #read(resources: readonly string[], timeoutMs: number): Promise<(Entry | undefined)[]> {
    return Promise.all(resources.map((resource) => this.#client.read(this.#key(resource), timeoutMs)))
  }

  #key(resource: string): string {
    return keyOf(this.#plan.prefix, resource)
  }

  async #told<T>(resources: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw error instanceof RangeError ? error : asEngineError(error, resources)
    }
  }
}

function operation(verb: string, key: string, more: Record<string, string> = {}): Operation {
  return { KV: { Verb: verb, Key: key, ...more } }
}

function isOf({ value, session }: Entry, owner: string): boolean {
  return session !== undefined && parseValue(value)?.owner === owner
}

/** All of them, locked for the owner by one session; or undefined. */
function ownEntries(found: readonly (Entry | undefined)[], owner: string): Entry[] | undefined {
  const own = found.filter((entry) => entry !== undefined && isOf(entry, owner)) as Entry[]
  if (own.length < found.length || own.some(({ session }) => session !== own[0]!.session)) return undefined
  return own
}

function refusal(found: readonly (Entry | undefined)[], owner: string): Refusal {
  const other = found.find((entry) => entry !== undefined && !isOf(entry, owner))
  const value = other === undefined ? undefined : parseValue(other.value)
  // Without a holder: gone by now, or its session has ended and the lock-delay runs.
  if (value === undefined) return { kind: 'refused', reason: 'held' }
  return {
    kind: 'refused',
    reason: 'held',
    holder: value.owner,
    ...(other!.session === undefined ? {} : { remainingMs: value.ttlMs }),
  }
}

function asEngineError(error: unknown, resources: readonly string[]): EngineError {
  if (error instanceof EngineError) return error
  const transient = error instanceof ConsulError ? error.transient : true
  return new EngineError(`consul: ${reasonOf(error)}${hint(error)}`, resources, { cause: error, transient })
}

function hint(error: unknown): string {
  if (!(error instanceof ConsulError) || !error.message.includes('Invalid Session TTL')) return ''
  return '; session_ttl_min in the servers’ configuration says how short a session may be, and the option sessionTtlMin must be the same'
}
