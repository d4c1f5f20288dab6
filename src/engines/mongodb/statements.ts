import { property } from '../shared/shape.ts'

/*
 * The document of a resource has the resource's name as its `_id`. It is never deleted, because `token` must only grow:
 *
 *   held   { _id, token, owner, since, until }
 *   free   { _id, token, owner: null }, or `until` has passed
 *
 * Every step is one update by an aggregation pipeline, so the server decides and writes in one atomic operation, by its own
 * clock (`$$NOW`, which is the same throughout a command).
 */

/** The lease has not ended. A document without `until` is free: a missing value is less than any other. */
const LIVE = { $gt: ['$until', '$$NOW'] }

/** What a read returns. Both spans are computed by the server's clock, so our clock plays no part. */
export const SHOWN = {
  owner: 1,
  token: 1,
  leftMs: { $subtract: ['$until', '$$NOW'] },
  heldMs: { $subtract: ['$$NOW', '$since'] },
}

/**
 * Grants a free resource. A held one stays as it is, except for its own owner: a request that is sent twice is granted once,
 * with the same token, and its ttl counts from the second request.
 */
export function take(owner: string, ttlMs: number): object[] {
  const again = { $mergeObjects: ['$$ROOT', { until: { $add: ['$$NOW', ttlMs] } }] }
  const held = { $cond: [{ $eq: ['$owner', { $literal: owner }] }, again, '$$ROOT'] }
  return [{ $replaceWith: { $cond: [LIVE, held, granted(owner, ttlMs)] } }]
}

/** Grants a resource to the next owner; the filter is `ownedBy` the previous one. */
export function passOn(owner: string, ttlMs: number): object[] {
  return [{ $replaceWith: granted(owner, ttlMs) }]
}

function granted(owner: string, ttlMs: number): object {
  const changes = {
    // 64 bits, also if a restored backup has it as a shorter number.
    token: { $add: [{ $toLong: { $ifNull: ['$token', 0] } }, 1] },
    // As a literal: '$until' would be read as the name of a field.
    owner: { $literal: owner },
    since: '$$NOW',
    until: { $add: ['$$NOW', ttlMs] },
  }
  return { $mergeObjects: ['$$ROOT', changes] }
}

/** Filters the resources that one of the owners holds now. */
export function ownedBy(resources: readonly string[], owners: readonly string[]): object {
  return { _id: oneOf(resources), owner: oneOf(owners), $expr: LIVE }
}

/** Filters the resources that anyone holds now, of these or of all. */
export function live(resources?: readonly string[]): object {
  return resources === undefined ? { $expr: LIVE } : { _id: oneOf(resources), $expr: LIVE }
}

export function extended(ttlMs: number): object[] {
  return [{ $set: { until: { $add: ['$$NOW', ttlMs] } } }]
}

/** An extension that also raises the counters to one number. It never lowers a counter. */
export function raised(token: bigint, ttlMs: number): object[] {
  return [{ $set: { until: { $add: ['$$NOW', ttlMs] }, token: { $max: ['$token', token] } } }]
}

/** The counter stays. */
export const FREED: object[] = [{ $set: { owner: null } }, { $unset: ['since', 'until'] }]

/**
 * Of all changes to the collection, those that may free a resource. A server logs an update as the changed fields or as the
 * whole document, whichever is shorter.
 */
export const FREEING: object[] = [
  {
    $match: {
      $or: [
        { 'updateDescription.updatedFields.owner': { $type: 'null' } },
        { 'fullDocument.owner': { $type: 'null' } },
        { operationType: { $in: ['delete', 'drop', 'rename', 'dropDatabase', 'invalidate'] } },
      ],
    },
  },
  { $project: { documentKey: 1 } },
]

function oneOf(values: readonly string[]): unknown {
  return values.length === 1 ? values[0] : { $in: values }
}

/** A document as the projection `SHOWN` returns it. */
export interface LeaseDocument {
  readonly resource: string
  readonly owner: string
  readonly token: bigint
  /** Unknown when the driver has repeated a request: the server remembers its answer without the computed fields. */
  readonly leftMs: number | undefined
  readonly heldMs: number | undefined
}

export function leaseOrThrow(document: unknown): LeaseDocument {
  const { _id, owner, token, leftMs, heldMs } = (document ?? {}) as Record<string, unknown>
  return {
    resource: String(_id),
    owner: String(owner),
    token: wholeOrThrow(token, `the token of '${String(_id)}'`),
    leftMs: numberOf(leftMs),
    heldMs: numberOf(heldMs),
  }
}

/** 64-bit numbers come as the driver's Long, because `PLAIN` asks for that; shorter ones and doubles come as numbers. */
function wholeOrThrow(value: unknown, what: string): bigint {
  if (isLong(value)) return BigInt(value.toString())
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value)
  throw new Error(`${what} is not a whole number: ${String(value)}`)
}

function numberOf(value: unknown): number | undefined {
  return isLong(value) || typeof value === 'number' ? Number(value.toString()) : undefined
}

function isLong(value: unknown): value is { toString(): string } {
  return property(value, '_bsontype') === 'Long'
}
