import type { LeaseRef } from '../../engine.ts'
import { together } from '../http/together.ts'
import { base64, type Gateway, type KeyValue } from './gateway.ts'
import { leaseIdOf, secondsOf, type Keys } from './keys.ts'
import type { EtcdLeases, KeptAlive } from './leases.ts'

export type Proof =
  | { readonly kind: 'held' }
  | { readonly kind: 'lost' }
  | { readonly kind: 'unknown'; readonly cause: Error }
  /** Held, but bound to an etcd lease of another length than was asked for. */
  | { readonly kind: 'otherTtl'; readonly found: KeyValue }

/** Renewals under way at a time: each is a request of its own. */
export const RENEWALS_AT_ONCE = 16
/** etcd takes 128 operations in a transaction, unless told otherwise. */
const READS_AT_ONCE = 100

/**
 * Renews the leases and proves that they are held, and that the renewal counts.
 *
 * A renewal alone proves little, because etcd does not agree on it: the leader just sets its own timer anew. A leader that
 * was frozen, and does not know yet that it was replaced, would do so too and answer as if all were well, while the timer
 * that counts runs on another member. So the keys are read afterwards, which takes the agreement of a majority, and the
 * term must be the same before and after: then nobody else can have been the leader when the renewal was made. A later
 * leader starts all timers anew.
 */
export async function prove(
  gateway: Gateway,
  leases: EtcdLeases,
  refs: readonly LeaseRef[],
  keys: Keys,
  timeoutMs: number,
): Promise<Proof[]> {
  const proofs = new Map<LeaseRef, Proof>()
  const kept = await together(refs, RENEWALS_AT_ONCE, async (ref): Promise<Kept> => {
    return leases.keepAlive(idOf(ref), timeoutMs).then(
      (alive) => ({ ref, alive }),
      (cause: unknown) => ({ ref, cause }),
    )
  })
  await together(batches(kept), RENEWALS_AT_ONCE, async (batch) => {
    try {
      const ranges = batch.flatMap(({ ref }) => keys.own(ref.resources, ref.owner).map((key) => ({ key: base64(key) })))
      const { header, found } = await gateway.read(ranges, timeoutMs)
      for (const each of batch) {
        const own = found.splice(0, each.ref.resources.length).map(([only]) => only)
        proofs.set(each.ref, judge(each, own, header.term))
      }
    } catch (cause) {
      for (const { ref } of batch) proofs.set(ref, unknown(cause))
    }
  })
  return refs.map((ref) => proofs.get(ref)!)
}

interface Kept {
  readonly ref: LeaseRef
  readonly alive?: KeptAlive | undefined
  readonly cause?: unknown
}

function judge({ ref, alive, cause }: Kept, own: readonly (KeyValue | undefined)[], term: string): Proof {
  if (own.some((each) => each?.createRevision !== ref.token)) return { kind: 'lost' }
  const other = own.find((each) => each!.lease !== idOf(ref))
  if (other !== undefined) return { kind: 'otherTtl', found: other }
  if (cause !== undefined) return unknown(cause)
  // Its time is over, but the keys are still to be removed.
  if (alive === undefined) return unknown(new Error('the etcd lease could not be renewed any more'))
  if (alive.term !== term) return unknown(new Error('the leader changed during the renewal'))
  return { kind: 'held' }
}

function idOf({ owner, ttlMs }: LeaseRef): string {
  return leaseIdOf(owner, secondsOf(ttlMs))
}

function unknown(cause: unknown): Proof {
  return { kind: 'unknown', cause: cause instanceof Error ? cause : new Error(String(cause)) }
}

function batches(kept: readonly Kept[]): Kept[][] {
  const all: Kept[][] = []
  let keys = Infinity
  for (const each of kept) {
    keys += each.ref.resources.length
    if (keys > READS_AT_ONCE) {
      all.push([])
      keys = each.ref.resources.length
    }
    all.at(-1)!.push(each)
  }
  return all
}
