import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
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
import { asError } from '../../errors.ts'
import { Cleanup } from '../shared/cleanup.ts'
import { inRounds } from '../shared/next-round.ts'
import { READERS } from '../shared/readers.ts'
import { batches } from '../shared/together.ts'
import { COME_AGAIN_MS } from '../shared/wanted.ts'
import type { MongoDb } from './client.ts'
import { cleanUpAfter } from './cleanup.ts'
import { checkMongodb, probeMongodb } from './doctor/index.ts'
import { isPermanent, mongodbError } from './errors.ts'
import { inspectMongodb } from './inspect.ts'
import { heldBy, holdersOf, ownedBy, type LeaseDocument, type LeaseHolder } from './statements.ts'
import { MongodbSteps } from './steps.ts'
import { ChangeStreamWakeups } from './wakeups.ts'

export interface MongodbSettings {
  readonly collection: string
  readonly requestTimeoutMs: (ttlMs: number) => number
  readonly limits: EngineLimits
  readonly clock: Clock
  /** Whether a connection can be spared for a change stream. */
  readonly canListen: boolean
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: 'one counter for each resource, in a document that is never deleted, raised in the same step as the grant',
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served in one process',
  shared: true,
}

/** Requests that belong to no lease have the timeout of a lease of 30 s. */
const NO_TTL_MS = 30_000

/** How often a request is made again because others have changed the same documents meanwhile. */
const MOST_TRIES = 3
/** Names and owners in one request. A server takes 16 MB. */
const MOST_BYTES = 1_000_000

/** Leases as documents of one collection. */
export class MongodbEngine implements Engine {
  readonly name = 'mongodb'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #db: MongoDb
  readonly #settings: MongodbSettings
  readonly #deadlines: Deadlines
  readonly #steps: MongodbSteps
  readonly #cleanup: Cleanup
  readonly #wakeups: ChangeStreamWakeups

  constructor(db: MongoDb, settings: MongodbSettings) {
    const { clock, collection, limits } = settings
    this.identity = `mongodb:${db.databaseName}.${collection}`
    this.limits = limits
    this.#db = db
    this.#settings = settings
    this.#deadlines = new Deadlines(clock)
    this.#steps = new MongodbSteps(db, collection, this.#deadlines)
    this.#cleanup = new Cleanup(clock, (error) => isPermanent(asError(error)))
    this.#wakeups = new ChangeStreamWakeups(this.#steps.collection, clock, this.#deadlines)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return inRounds(this.#settings.clock, request, () => this.#acquire(request))
  }

  async #acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    try {
      if (resources.length > 1) return await this.#takeAll(request)
      const shown = await this.#steps.take(resources[0]!, request, 'majority', this.#settings.requestTimeoutMs(ttlMs))
      const own = holderIn(shown, owner)
      return own === undefined ? await this.#refusal(request, [shown]) : { kind: 'granted', token: own.token }
    } catch (cause) {
      return await this.#failed(cause, request, [owner])
    }
  }

  /** By what is in the way and lasts longest. A writer that waits for readers keeps later ones out, and comes again soon. */
  async #refusal(request: LeaseRequest, documents: readonly LeaseDocument[]): Promise<Refusal> {
    const { resources, ttlMs, shared = false, waits = false } = request
    const blocker = documents
      .flatMap((document) => blockersIn(document, shared))
      .reduce((one, two) => ((one.leftMs ?? 0) > (two.leftMs ?? 0) ? one : two), { leftMs: undefined })
    const wants = waits && !shared && documents.some(({ readers }) => readers.length > 0)
    if (wants) await this.#steps.want(resources, this.#settings.requestTimeoutMs(ttlMs))
    const { owner: holder, leftMs } = blocker
    const remainingMs = wants ? Math.min(leftMs ?? COME_AGAIN_MS, COME_AGAIN_MS) : leftMs
    return {
      kind: 'refused',
      reason: 'held',
      ...(holder === undefined ? {} : { holder }),
      ...(remainingMs === undefined ? {} : { remainingMs }),
    }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    try {
      const token = (await this.#move(lease, next)) ?? (await this.#moveOwn(lease, next))
      if (token !== undefined) return { kind: 'granted', token }
      // A part of the lease was lost, so the rest is of no use to either of them.
      if (lease.resources.length > 1)
        await this.#clear(lease.resources, [lease.owner, next.owner], lease.ttlMs, ownedBy)
      return { kind: 'refused', reason: 'held' }
    } catch (cause) {
      // It is unknown which of the two holds it, and neither wants it any more.
      return await this.#failed(cause, next, [lease.owner, next.owner], ownedBy)
    }
  }

  /** As `handOver`, but the old owner may go on: what was not moved for certain and as a whole is given back to it. */
  async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const giveBack = (): Promise<void> =>
      this.#steps.giveBack(lease, next.owner, this.#settings.requestTimeoutMs(NO_TTL_MS))
    try {
      const token = await this.#moveOwn(lease, next)
      if (token !== undefined) return { kind: 'granted', token }
      // A part of it, perhaps, if it changed hands in the middle.
      if (lease.resources.length > 1) await this.#cleanup.now(giveBack, next.ttlMs)
      return { kind: 'refused', reason: 'held' }
    } catch (cause) {
      await cleanUpAfter(cause, giveBack, next.ttlMs, this.#cleanup)
      throw mongodbError(cause, lease.resources)
    }
  }

  /** The new token, or undefined where the old owner did not hold all of it. */
  async #move(lease: LeaseRef, next: LeaseRequest): Promise<bigint | undefined> {
    const { resources, owner, token } = lease
    const timeoutMs = this.#settings.requestTimeoutMs(next.ttlMs)
    if (resources.length === 1)
      return (await this.#steps.passOn(resources[0]!, owner, next, 'majority', timeoutMs))?.token
    return (await this.#steps.passAllOn(lease, next, timeoutMs)) ? token + 1n : undefined
  }

  /** By the counters that it has now: what was given back has greater ones than its owner knows. Where a part is missing, nothing is moved. */
  async #moveOwn(lease: LeaseRef, next: LeaseRequest): Promise<bigint | undefined> {
    const { resources, owner } = lease
    const documents = await this.#steps.look(resources, this.#settings.requestTimeoutMs(next.ttlMs))
    const own = documents.filter((document) => document.owner === owner && holderIn(document, owner) !== undefined)
    if (own.length < resources.length) return undefined
    const token = own.reduce((most, document) => (document.token > most ? document.token : most), 0n)
    return this.#move({ ...lease, token }, next)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return (await Promise.all(batches(leases, MOST_BYTES, sizeOf).map((batch) => this.#extend(batch)))).flat()
  }

  async release(lease: LeaseRef): Promise<Release> {
    try {
      const ours = await this.#steps.free(lease, 'majority', this.#settings.requestTimeoutMs(lease.ttlMs))
      // The servers do not know who waits.
      return { ours, awaited: 0 }
    } catch (cause) {
      return await this.#failed(cause, lease, [lease.owner])
    }
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    if (!this.#settings.canListen) return { armed: Promise.resolve(false), close: () => undefined }
    return this.#wakeups.watch(resources, freed)
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    return inspectMongodb(this.#steps, this.#settings.requestTimeoutMs(NO_TTL_MS), resource)
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkMongodb({
      db: this.#db,
      collection: this.#settings.collection,
      leases: this.#steps.collection,
      canListen: this.#settings.canListen,
      clock: this.#settings.clock,
      ttlMs,
      timeoutMs: this.#settings.requestTimeoutMs(ttlMs),
    })
  }

  async probe(): Promise<readonly NodeState[]> {
    return [await probeMongodb(this.#db, this.#settings.clock)]
  }

  async init(): Promise<readonly string[]> {
    const { collection } = this.#settings
    const name = `${this.#db.databaseName}.${collection}`
    try {
      if (await this.#steps.create(this.#settings.requestTimeoutMs(NO_TTL_MS)))
        return [`Created the collection ${name}.`]
      return [`The collection ${name} existed already.`]
    } catch (cause) {
      throw mongodbError(cause, [])
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#wakeups.close(), this.#cleanup.close()])
    this.#deadlines.close()
  }

  /**
   * Several resources, all or none, without a transaction: a server without a replica set has no transactions.
   *
   * 1. Read all documents. If one is held, nothing is taken: clients that want several resources would otherwise take and free
   *    some of them again and again, and each time turn away, and then wake, clients that want only these.
   * 2. The token is one above the highest counter. One request, acknowledged by a majority, takes one resource after the
   *    other, in the order of their names, each only if it is free and its counter is still below the token. It stops at the
   *    first that is not so; then those taken before it are freed. Nobody waits while holding something, so there is no
   *    deadlock. Of several clients that want the same resources, the one that gets the first is not stopped by the others
   *    there.
   *
   * The token is above every earlier token of each resource, because it is written only over a lower counter. It is below every
   * later token, because no step lowers a counter. So the tokens of one resource differ and grow, and none of this depends on a
   * clock. A client that dies in the middle leaves some of the resources held for their ttl, like a client that dies right after
   * its grant.
   *
   * A reader joins those that share a resource if their counter is not above its token. If it joins others everywhere, and they
   * have one counter, that is its token too.
   */
  async #takeAll(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs, shared = false } = request
    const timeoutMs = this.#settings.requestTimeoutMs(ttlMs)
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const documents = await this.#steps.look(resources, timeoutMs)
      const own = documents.flatMap((document) => holderIn(document, owner) ?? [])
      const highest = documents.reduce((most, { token }) => (token > most ? token : most), 0n)
      const token = isJoined(request, documents) ? highest : highest + 1n
      if (own.length === resources.length && own.every((holder) => holder.token === own[0]!.token)) {
        // The same owner asks again.
        if (await this.#steps.extend([request], timeoutMs)) return { kind: 'granted', token: own[0]!.token }
      } else {
        const others = documents.filter((document) => holderIn(document, owner) === undefined)
        if (others.some((document) => blockersIn(document, shared).length > 0)) return this.#refusal(request, others)
        if (await this.#steps.takeAll(request, token, timeoutMs)) return { kind: 'granted', token }
      }
      await this.#clear(resources, [owner], ttlMs)
    }
    return { kind: 'refused', reason: 'split' }
  }

  /**
   * All in one request, which says how many documents it has found. If some were lost, a read shows which. Only what one
   * request has found as a whole counts as held.
   */
  async #extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const timeoutMs = this.#settings.requestTimeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs)))
    let held = leases
    try {
      for (let tries = 0; held.length > 0 && !(await this.#steps.extend(held, timeoutMs)); tries++) {
        if (tries === MOST_TRIES) throw new Error('leases were lost faster than it could be found out which')
        held = await this.#stillHeld(held, timeoutMs)
      }
    } catch (error) {
      const cause = asError(error)
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
    const isHeld = new Set(held)
    const lost = leases.filter((lease) => !isHeld.has(lease))
    // The rest of a lease on several resources was just extended, and nobody will release it.
    const torn = lost.filter(({ resources }) => resources.length > 1)
    await Promise.all(torn.map(({ resources, owner, ttlMs }) => this.#clear(resources, [owner], ttlMs)))
    return leases.map((lease) => ({ kind: isHeld.has(lease) ? 'held' : 'lost' }))
  }

  async #stillHeld(leases: readonly LeaseRef[], timeoutMs: number): Promise<readonly LeaseRef[]> {
    const resources = [...new Set(leases.flatMap((lease) => lease.resources))]
    const documents = new Map<string, LeaseDocument>()
    for (const document of await this.#steps.look(resources, timeoutMs)) documents.set(document.resource, document)
    const isHeld = (resource: string, owner: string): boolean => {
      const document = documents.get(resource)
      return document !== undefined && holderIn(document, owner) !== undefined
    }
    return leases.filter((lease) => lease.resources.every((resource) => isHeld(resource, lease.owner)))
  }

  async #clear(resources: readonly string[], owners: readonly string[], ttlMs: number, held = heldBy): Promise<void> {
    if (resources.length > 0) await this.#cleanup.now(() => this.#free(resources, owners, held), ttlMs)
  }

  /** The outcome is unknown, so everything that the request may have granted is freed. */
  async #failed(
    cause: unknown,
    { resources, ttlMs }: LeaseRequest | LeaseRef,
    owners: string[],
    held = heldBy,
  ): Promise<never> {
    await cleanUpAfter(cause, () => this.#free(resources, owners, held), ttlMs, this.#cleanup)
    throw mongodbError(cause, resources)
  }

  #free(resources: readonly string[], owners: readonly string[], held: typeof heldBy): Promise<void> {
    return this.#steps.clear(resources, owners, this.#settings.requestTimeoutMs(NO_TTL_MS), held)
  }
}

function sizeOf({ resources, owner }: LeaseRef): number {
  return resources.reduce((sum, resource) => sum + Buffer.byteLength(resource), 2 * owner.length)
}

/** The lease of this owner on the resource. */
function holderIn(document: LeaseDocument, owner: string): LeaseHolder | undefined {
  return holdersOf(document).find((holder) => holder.owner === owner)
}

/** What keeps a request out: a lease of others, or a writer that waits. */
interface BlockingLease {
  readonly owner?: string
  readonly leftMs: number | undefined
}

function blockersIn(document: LeaseDocument, shared: boolean): readonly BlockingLease[] {
  const holders = holdersOf(document)
  if (!shared) return holders
  const { owner, wantedMs } = document
  const wanted = wantedMs > 0 ? [{ ...holders[0], leftMs: wantedMs }] : []
  return owner === READERS ? wanted : [...holders, ...wanted]
}

/** A reader joins others on all of the resources, and they have one counter. */
function isJoined({ resources, shared = false }: LeaseRequest, documents: readonly LeaseDocument[]): boolean {
  if (!shared || documents.length < resources.length) return false
  const [first] = documents
  return documents.every(({ readers, token }) => readers.length > 0 && token === first!.token)
}
