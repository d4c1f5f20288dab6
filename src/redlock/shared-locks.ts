import { systemClock, type Clock } from '../clock.ts'
import type { Engine } from '../engine.ts'
import { DEFAULT_MAX_TTL_MS, forRedlockUsers } from '../engines/redis/make.ts'
import { property } from '../engines/shared/shape.ts'
import type { LockEvent } from '../events.ts'
import { createLocks, type Locks } from '../locks.ts'
import { systemRandom, type Random } from '../random.ts'
import { Ballot, OpenBallots } from './ballots.ts'
import type { ExecutionStats } from './errors.ts'
import type { RetryWindow } from './retry-window.ts'

/** What decides whether two instances can share their locks. */
export interface SharedTerms {
  readonly driftFactor: number
  readonly prefix: string | undefined
  readonly maxTtl: number | undefined
}

/** By each of their clients. Forgotten with them. */
const known = new WeakMap<object, SharedLocks<object>[]>()

/** The locks of a set of clients: one engine for all instances that are alike, because a process wakes its own waiters itself. */
export function sharedLocks<Client extends object>(
  clients: readonly Client[],
  terms: SharedTerms,
): SharedLocks<Client> {
  const same = known.get(clients[0]!)?.find((shared) => shared.fits(clients, terms))
  if (same !== undefined) return same as unknown as SharedLocks<Client>
  const made = new SharedLocks(clients, terms)
  for (const client of clients)
    known.set(client, [...(known.get(client) ?? []), made as unknown as SharedLocks<object>])
  return made
}

/** One call of `acquire`: which ballots it has caused, and when. */
export interface AcquireCall<Client extends object> {
  readonly made: { readonly atMs: number; readonly owner: string; readonly ballot: Ballot<Client> }[]
  /** As the core numbers it. */
  readonly ids: number[]
  readonly resources: number
  readonly onAgainst: (error: Error) => void
  /** Where it waits. */
  readonly window?: RetryWindow | undefined
}

export class SharedLocks<Client extends object> {
  readonly clients: readonly Client[]
  readonly clock: Clock
  readonly random: Random
  readonly engine: Engine
  readonly locks: Locks
  /** How long a lock needs no proof: forever where there is one node, which nobody else can stand in for. */
  readonly maxTtlMs: number
  readonly #terms: SharedTerms
  readonly #ballots = new OpenBallots<Client>()
  readonly #calls = new Map<number, AcquireCall<Client>>()
  /** The call that is being made in this very moment. */
  #asking: AcquireCall<Client> | undefined

  constructor(clients: readonly Client[], terms: SharedTerms, { clock = systemClock, random = systemRandom } = {}) {
    this.clients = clients
    this.clock = clock
    this.random = random
    this.#terms = terms
    const { driftFactor: drift, prefix = '', maxTtl = DEFAULT_MAX_TTL_MS } = terms
    for (const [index, client] of clients.entries()) assertFits(client, index, clients.length)
    const options = { drift, prefix, maxTtl, clock, random }
    this.engine = forRedlockUsers(clients, options, (node, step) => this.#ballots.hear(node, step))
    this.locks = createLocks(this.engine, { clock, random, observe: (event) => this.#observe(event) })
    this.maxTtlMs = clients.length === 1 ? Infinity : maxTtl
  }

  fits(clients: readonly object[], { driftFactor, prefix, maxTtl }: SharedTerms): boolean {
    const own = this.#terms
    const isAlike = own.driftFactor === driftFactor && own.prefix === prefix && own.maxTtl === maxTtl
    const members: readonly object[] = this.clients
    return isAlike && clients.length === members.length && clients.every((client) => members.includes(client))
  }

  /** Its clients are closed: a call that comes with them again gets an engine of its own. */
  forget(): void {
    for (const client of this.clients) {
      const others = known.get(client)!.filter((shared) => (shared as unknown) !== this)
      known.set(client, others)
    }
  }

  /** Makes a call of the locks, and notes its attempts. */
  async during<T>(call: AcquireCall<Client>, ask: () => Promise<T>): Promise<T> {
    this.#asking = call
    const asked = ask()
    this.#asking = undefined
    try {
      return await asked
    } finally {
      for (const { owner, ballot } of call.made) {
        this.#ballots.remove('acquire', owner)
        ballot.close(this.clock)
      }
      for (const id of call.ids.splice(0)) this.#calls.delete(id)
    }
  }

  /** The votes on an extension or a release, while it runs. */
  async withBallot<T>(
    operation: 'extend' | 'release',
    owner: string,
    { resources, onAgainst }: Pick<AcquireCall<Client>, 'resources' | 'onAgainst'>,
    work: () => Promise<T>,
  ): Promise<{ readonly stats: Promise<ExecutionStats<Client>>; readonly outcome: PromiseSettledResult<T> }> {
    const ballot = new Ballot(this.clients, resources, onAgainst)
    this.#ballots.add(operation, owner, ballot)
    const [outcome] = await Promise.allSettled([work()])
    this.#ballots.remove(operation, owner)
    ballot.close(this.clock)
    return { stats: ballot.stats, outcome }
  }

  #observe(event: LockEvent): void {
    if (event.type === 'asked' && this.#asking !== undefined) {
      this.#asking.ids.push(event.call)
      this.#calls.set(event.call, this.#asking)
    }
    if (!('call' in event)) return
    const call = this.#calls.get(event.call)
    call?.window?.observe(event)
    if (call === undefined || event.type !== 'attempt') return
    const ballot = new Ballot(this.clients, call.resources, call.onAgainst)
    call.made.push({ atMs: this.clock.monotonicMs(), owner: event.owner, ballot })
    this.#ballots.add('acquire', event.owner, ballot)
  }
}

/** What redlock takes and this cannot, with what to write instead. */
function assertFits(client: object, index: number, size: number): void {
  const keyPrefix = property(property(client, 'options'), 'keyPrefix')
  if (typeof keyPrefix === 'string' && keyPrefix !== '') {
    throw new TypeError(
      `clients[${index}]: expected a client without a keyPrefix, got one with '${keyPrefix}'; for the same keys write ` +
        `new Redlock([client.duplicate({ keyPrefix: '' })], { prefix: '${keyPrefix}' })`,
    )
  }
  if (size > 1 && property(client, 'isCluster') === true) {
    throw new TypeError(
      `clients[${index}]: expected a client of one master, got a Redis Cluster among ${size} clients; a Cluster fails over by ` +
        'itself and may forget a lock, so it is no vote: write new Redlock([cluster]), or take clients of single masters',
    )
  }
}
