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

/** 64 bits, also if a restored backup has it as a shorter number. */
const COUNTER = { $toLong: { $ifNull: ['$token', 0] } }

/** What a read returns. Both spans are computed by the server's clock, so our clock plays no part. */
export const SHOWN = {
  owner: 1,
  token: 1,
  leftMs: { $subtract: ['$until', '$$NOW'] },
  heldMs: { $subtract: ['$$NOW', '$since'] },
}

/** What a read before a grant returns: the same, and a counter that is none makes it fail. */
export const LOOKED_AT = { ...SHOWN, token: COUNTER }

/**
 * Grants a free resource. A held one stays as it is, except for its own owner: a request that is sent twice is granted once,
 * with the same token, and its ttl counts from the second request.
 */
export function take(owner: string, ttlMs: number): object[] {
  const again = { $mergeObjects: ['$$ROOT', { until: { $add: ['$$NOW', ttlMs] } }] }
  const held = { $cond: [{ $eq: ['$owner', { $literal: owner }] }, again, '$$ROOT'] }
  return [{ $replaceWith: { $cond: [LIVE, held, granted(owner, ttlMs)] } }]
}

/**
 * Grants a free resource with this token, which is above its counter. If it is held by another owner, or if its counter has
 * grown meanwhile, the statement fails, because no text is a number.
 */
export function takeWith(token: bigint, owner: string, ttlMs: number): object[] {
  const isOthers = { $and: [LIVE, { $ne: ['$owner', { $literal: owner }] }] }
  const isTaken = { $or: [isOthers, { $gte: [COUNTER, token] }] }
  const fail = { $toLong: { $concat: ['ringfence: taken meanwhile: ', '$_id'] } }
  return [{ $replaceWith: { $cond: [isTaken, fail, granted(owner, ttlMs, token)] } }]
}

/** Grants a resource to the next owner; the filter is `ownedBy` the previous one. */
export function passOn(owner: string, ttlMs: number, token?: bigint): object[] {
  return [{ $replaceWith: granted(owner, ttlMs, token) }]
}

/** Without a token: the next one. */
function granted(owner: string, ttlMs: number, token?: bigint): object {
  const changes = {
    token: token ?? { $add: [COUNTER, 1] },
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

export function named(resources: readonly string[]): object {
  return { _id: oneOf(resources) }
}

/** Filters the resources that anyone holds now, of these or of all. */
export function live(resources?: readonly string[]): object {
  return resources === undefined ? { $expr: LIVE } : { _id: oneOf(resources), $expr: LIVE }
}

/** Each lease by its own ttl. Most leases of a process have the same. */
export function extended(leases: readonly { readonly owner: string; readonly ttlMs: number }[]): object[] {
  const owners = leases.map(({ owner }) => owner)
  const ttls = leases.map(({ ttlMs }) => ttlMs)
  const isOne = ttls.every((ttlMs) => ttlMs === ttls[0])
  const place = { $indexOfArray: [{ $literal: owners }, '$owner'] }
  const ttl = isOne ? ttls[0] : { $arrayElemAt: [{ $literal: ttls }, place] }
  return [{ $set: { until: { $add: ['$$NOW', ttl] } } }]
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
