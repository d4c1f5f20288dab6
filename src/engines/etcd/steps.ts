import type { LeaseRef, LeaseRequest } from '../../engine.ts'
import { asError } from '../../errors.ts'
import { batches, together } from '../shared/together.ts'
import { base64 } from '../shared/http/text.ts'
import {
  created,
  headerOf,
  numberIn,
  put,
  rangeFields,
  rangeRequest,
  type EtcdClient,
  type EtcdJson,
  type EtcdKeyValue,
} from './client.ts'
import { CODE, isCode } from './errors.ts'
import { ownLeaseId, secondsOf, valueText, type EtcdKeys, type EtcdValue, type KeyOwner } from './keys.ts'

export interface KeptAlive {
  /** The leader's term before the renewal, as the member that we asked knew it. */
  readonly term: string
}

/** Whose the resources are. */
export type EtcdOwnership =
  | { readonly kind: 'free' }
  | { readonly kind: 'own'; readonly token: bigint }
  | { readonly kind: 'taken'; readonly by: EtcdKeyValue }

/** What a renewal has shown. */
export type EtcdProof =
  | { readonly kind: 'held' }
  | { readonly kind: 'lost' }
  | { readonly kind: 'unknown'; readonly cause: Error }
  /** Held, but bound to an etcd lease of another length than the one asked for. */
  | { readonly kind: 'otherTtl'; readonly found: EtcdKeyValue }

/** How many renewals are under way at a time: each is a request of its own. */
export const RENEWALS_AT_ONCE = 16
/** etcd takes 128 operations in a transaction by default. */
const READS_AT_ONCE = 100

/** etcd's own leases, and the keys that are bound to them. When an etcd lease ends, its keys go with it. */
export class EtcdSteps {
  readonly #client: EtcdClient
  readonly #keys: EtcdKeys

  constructor(client: EtcdClient, keys: EtcdKeys) {
    this.#client = client
    this.#keys = keys
  }

  /** Safe to repeat: an etcd lease that exists already is renewed instead. */
  async grantLease(lease: Pick<LeaseRef, 'owner' | 'ttlMs'>, timeoutMs: number): Promise<void> {
    const id = ownLeaseId(lease)
    try {
      await this.#client.call('lease/grant', { ID: id, TTL: String(secondsOf(lease.ttlMs)) }, timeoutMs)
    } catch (error) {
      if (!isCode(error, CODE.failedPrecondition)) throw error
      // There is one with this id already. It is our own, from an earlier attempt whose answer was lost.
      await this.#client.call('lease/keepalive', { ID: id }, timeoutMs)
    }
  }

  /** Returns undefined when there is no etcd lease with this id. */
  async keepAlive(id: string, timeoutMs: number): Promise<KeptAlive | undefined> {
    const answer = (await this.#client.call('lease/keepalive', { ID: id }, timeoutMs))['result'] as EtcdJson
    const { term } = headerOf(answer)
    // The answer about an etcd lease that is gone has no TTL.
    return numberIn(answer['TTL'] ?? '0', answer) > 0n ? { term } : undefined
  }

  /** Returns false when the etcd lease was gone already. */
  async revoke(id: string, timeoutMs: number): Promise<boolean> {
    try {
      await this.#client.call('lease/revoke', { ID: id }, timeoutMs)
      return true
    } catch (error) {
      if (isCode(error, CODE.notFound)) return false
      throw error
    }
  }

  /** Returns how long the etcd lease lasts unless it is renewed, rounded up; undefined when it is gone. */
  async remainingMs(id: string, timeoutMs: number): Promise<number | undefined> {
    const answer = await this.#client.call('lease/timetolive', { ID: id }, timeoutMs)
    const [left, granted] = [numberIn(answer['TTL'] ?? '0', answer), numberIn(answer['grantedTTL'] ?? '0', answer)]
    if (left < 0n) return undefined
    // etcd says it in whole seconds, rounded down.
    return Number(left < granted ? left + 1n : granted) * 1000
  }

  /** Returns the first key of each resource: that of its holder, or of one of those that share it. */
  async holders(resources: readonly string[], timeoutMs: number): Promise<(EtcdKeyValue | undefined)[]> {
    const { found } = await this.#client.read(this.#firsts(resources), timeoutMs)
    return found.map(([first]) => first)
  }

  /** Returns the keys with which the owner holds the resources, for those that it holds. */
  async held(request: KeyOwner, timeoutMs: number): Promise<EtcdKeyValue[]> {
    const own = this.#keys.own(request)
    if (request.shared !== true) {
      const holders = await this.holders(request.resources, timeoutMs)
      return holders.flatMap((holder, index) => (holder?.key === own[index] ? [holder!] : []))
    }
    const [mine, writers] = await this.#sharedView(request, timeoutMs)
    return mine.flatMap((each, index) => (each !== undefined && !isBefore(writers[index], each) ? [each] : []))
  }

  async ownership(request: KeyOwner, timeoutMs: number): Promise<EtcdOwnership> {
    if (request.shared !== true) return this.#ownership(request, await this.holders(request.resources, timeoutMs))
    const [mine, writers] = await this.#sharedView(request, timeoutMs)
    const index = writers.findIndex((writer, index) => isBefore(writer, mine[index]))
    if (index < 0) return ownedBy(mine)
    // The writer that is in the way may itself wait for readers.
    const [holder = writers[index]!] = await this.holders([request.resources[index]!], timeoutMs)
    return { kind: 'taken', by: holder }
  }

  /**
   * Creates the keys if nobody holds any of the resources and nobody waits for one; for a shared lease, nobody but others who
   * share them. Returns whose they are now.
   */
  async take(request: LeaseRequest, value: EtcdValue, timeoutMs: number): Promise<EtcdOwnership> {
    const { resources, owner, ttlMs, shared = false } = request
    const own = this.#keys.own(request)
    const inTheWay = shared ? this.#keys.exclusive : this.#keys.folder
    const unused = resources.map((resource) => created(rangeFields(inTheWay(resource)), '0'))
    const { header, succeeded, results } = await this.#client.transact(
      // Where all keys of the folder are in the way, our own are, too.
      shared ? [...unused, created({ key: base64(own[0]!) }, '0')] : unused,
      own.map((key) => put(key, valueText(value), ownLeaseId({ owner, ttlMs }))),
      shared ? [] : this.#firsts(resources).map(rangeRequest),
      timeoutMs,
    )
    if (succeeded) return { kind: 'own', token: header.revision }
    // The keys may be our own, sent before to a member that did not answer in time.
    if (shared) return this.ownership(request, timeoutMs)
    return this.#ownership(
      request,
      results.map(([first]) => first),
    )
  }

  /** Binds the keys to the etcd lease of this ttl, which keeps their create revision. Returns false when they are lost. */
  async rebind(lease: LeaseRef, value: EtcdValue, timeoutMs: number): Promise<boolean> {
    const { owner, token, ttlMs } = lease
    const own = this.#keys.own(lease)
    const { succeeded } = await this.#client.transact(
      own.map((key) => created({ key: base64(key) }, String(token))),
      own.map((key) => put(key, valueText(value), ownLeaseId({ owner, ttlMs }))),
      [],
      timeoutMs,
    )
    return succeeded
  }

  /**
   * Renews the leases and proves that they are held, and that the renewal counts.
   *
   * A renewal alone proves little, because the leader does not ask the other members: it just sets its own timer anew. A
   * leader that was frozen, and does not know yet that it was replaced, does so too and answers as if all were well, while the
   * timer that counts runs on another member. So the keys are read after the renewal, which takes the agreement of a majority,
   * and the term must be the same before and after. Then no other member can have been the leader at the renewal. A later
   * leader starts all timers anew.
   */
  async prove(refs: readonly LeaseRef[], timeoutMs: number): Promise<EtcdProof[]> {
    const proofs = new Map<LeaseRef, EtcdProof>()
    const renewed = await together(refs, RENEWALS_AT_ONCE, async (ref): Promise<Renewed> => {
      return this.keepAlive(ownLeaseId(ref), timeoutMs).then(
        (alive) => ({ ref, alive }),
        (cause: unknown) => ({ ref, cause }),
      )
    })
    const reads = batches(renewed, READS_AT_ONCE, ({ ref }) => ref.resources.length)
    await together(reads, RENEWALS_AT_ONCE, async (batch) => {
      try {
        const own = batch.flatMap(({ ref }) => this.#keys.own(ref))
        const { header, found } = await this.#client.read(
          own.map((key) => ({ key: base64(key) })),
          timeoutMs,
        )
        for (const each of batch) {
          const keys = found.splice(0, each.ref.resources.length).map(([only]) => only)
          proofs.set(each.ref, proofOf(each, keys, header.term))
        }
      } catch (cause) {
        for (const { ref } of batch) proofs.set(ref, unknown(cause))
      }
    })
    return refs.map((ref) => proofs.get(ref)!)
  }

  /** Decides from the first keys of the folders. */
  #ownership(request: KeyOwner, holders: readonly (EtcdKeyValue | undefined)[]): EtcdOwnership {
    const own = this.#keys.own(request)
    const other = holders.find((holder, index) => holder !== undefined && holder.key !== own[index])
    return other === undefined ? ownedBy(holders) : { kind: 'taken', by: other }
  }

  /**
   * Returns the own shared key and the first exclusive key of each resource. They may be of different revisions: what matters is
   * which of the two was created first, and nothing is ever created before what exists.
   */
  async #sharedView(request: KeyOwner, timeoutMs: number): Promise<[FoundKey[], FoundKey[]]> {
    const { resources } = request
    const own = this.#keys.own(request).map((key) => ({ key: base64(key) }))
    const firsts = this.#firsts(resources, this.#keys.exclusive)
    const pages = await Promise.all(
      batches([...own, ...firsts], READS_AT_ONCE, () => 1).map((ranges) => this.#client.read(ranges, timeoutMs)),
    )
    const found = pages.flatMap((page) => page.found.map(([first]) => first))
    return [found.slice(0, resources.length), found.slice(resources.length)]
  }

  #firsts(resources: readonly string[], range = this.#keys.folder): object[] {
    return resources.map((resource) => ({
      ...rangeFields(range(resource)),
      sort_target: 'CREATE',
      sort_order: 'ASCEND',
      limit: '1',
    }))
  }
}

type FoundKey = EtcdKeyValue | undefined

/** A key that does not exist yet comes last. */
function isBefore(one: FoundKey, other: FoundKey): boolean {
  return one !== undefined && (other === undefined || one.createRevision < other.createRevision)
}

/** Nobody else is in the way. */
function ownedBy(own: readonly FoundKey[]): EtcdOwnership {
  const mine = own.find((each) => each !== undefined)
  return mine === undefined ? { kind: 'free' } : { kind: 'own', token: mine.createRevision }
}

interface Renewed {
  readonly ref: LeaseRef
  readonly alive?: KeptAlive | undefined
  readonly cause?: unknown
}

function proofOf({ ref, alive, cause }: Renewed, own: readonly (EtcdKeyValue | undefined)[], term: string): EtcdProof {
  if (own.some((each) => each?.createRevision !== ref.token)) return { kind: 'lost' }
  const other = own.find((each) => each!.lease !== ownLeaseId(ref))
  if (other !== undefined) return { kind: 'otherTtl', found: other }
  if (cause !== undefined) return unknown(cause)
  // Its time is over, and etcd is about to remove the keys.
  if (alive === undefined) return unknown(new Error('the etcd lease has ended and could not be renewed'))
  if (alive.term !== term) return unknown(new Error('the leader changed during the renewal'))
  return { kind: 'held' }
}

function unknown(cause: unknown): EtcdProof {
  return { kind: 'unknown', cause: asError(cause) }
}
