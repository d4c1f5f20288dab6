/**
 * The document of a resource, its `_id` the resource's name. It is never deleted, because `token` must only grow:
 *
 *   held   { _id, token, owner, since, until }
 *   free   { _id, token, owner: null }, or `until` is over
 *
 * Every step is one update of one document by an aggregation pipeline, so that it is decided and done at once, by the
 * server's own clock (`$$NOW`, the same throughout a command).
 */

/** Nobody else's until then. A document without `until` is free: a missing value is less than any. */
const LIVE = { $gt: ['$until', '$$NOW'] }

/** What a take or a look answers; times are left and gone by the server's clock, so ours plays no part. */
export const SHOWN = {
  owner: 1,
  token: 1,
  leftMs: { $subtract: ['$until', '$$NOW'] },
  heldMs: { $subtract: ['$$NOW', '$since'] },
}

/**
 * Grants a free resource. A held one stays as it is, except for its own owner: who asks twice is granted once, with the same
 * token, and his time counts from the second question.
 */
export function take(owner: string, ttlMs: number): object[] {
  const again = { $mergeObjects: ['$$ROOT', { until: { $add: ['$$NOW', ttlMs] } }] }
  const held = { $cond: [{ $eq: ['$owner', { $literal: owner }] }, again, '$$ROOT'] }
  return [{ $replaceWith: { $cond: [LIVE, held, granted(owner, ttlMs)] } }]
}

/** Passes on a resource that is `mine(...)` of the one before. */
export function passOn(owner: string, ttlMs: number): object[] {
  return [{ $replaceWith: granted(owner, ttlMs) }]
}

function granted(owner: string, ttlMs: number): object {
  const changes = {
    // 64 bits, whatever a restored backup has made of it.
    token: { $add: [{ $toLong: { $ifNull: ['$token', 0] } }, 1] },
    // As a literal: '$until' would be read as a field.
    owner: { $literal: owner },
    since: '$$NOW',
    until: { $add: ['$$NOW', ttlMs] },
  }
  return { $mergeObjects: ['$$ROOT', changes] }
}

/** Those of the resources that one of the owners holds now. */
export function mine(resources: readonly string[], owners: readonly string[]): object {
  return { _id: oneOf(resources), owner: oneOf(owners), $expr: LIVE }
}

/** Those of the resources, or of all, that anyone holds now. */
export function live(resources?: readonly string[]): object {
  return resources === undefined ? { $expr: LIVE } : { _id: oneOf(resources), $expr: LIVE }
}

export function extended(ttlMs: number): object[] {
  return [{ $set: { until: { $add: ['$$NOW', ttlMs] } } }]
}

/** An extension that also raises the counters to one number, never lowers one. */
export function raised(token: bigint, ttlMs: number): object[] {
  return [{ $set: { until: { $add: ['$$NOW', ttlMs] }, token: { $max: ['$token', token] } } }]
}

/** The counter stays. */
export const FREED: object[] = [{ $set: { owner: null } }, { $unset: ['since', 'until'] }]

/**
 * Of all changes to the collection, those that may free a resource. A server writes down an update as its difference or, if
 * that is no longer, as the whole document.
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

/** A document as `SHOWN` shows it. */
export interface Shown {
  readonly resource: string
  readonly owner: string
  readonly token: bigint
  /** Unknown when the driver has repeated a request: the server remembers its answer without what was computed. */
  readonly leftMs: number | undefined
  readonly heldMs: number | undefined
}

export function shownOrThrow(document: unknown): Shown {
  const { _id, owner, token, leftMs, heldMs } = (document ?? {}) as Record<string, unknown>
  return {
    resource: String(_id),
    owner: String(owner),
    token: wholeOrThrow(token, `the token of '${String(_id)}'`),
    leftMs: numberOf(leftMs),
    heldMs: numberOf(heldMs),
  }
}

/** 64-bit numbers come as the driver's Long, because the collection was opened so; shorter ones, and doubles, as numbers. */
function wholeOrThrow(value: unknown, what: string): bigint {
  if (isLong(value)) return BigInt(value.toString())
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value)
  throw new Error(`${what} is not a whole number: ${String(value)}`)
}

function numberOf(value: unknown): number | undefined {
  return isLong(value) || typeof value === 'number' ? Number(value.toString()) : undefined
}

function isLong(value: unknown): value is { toString(): string } {
  return typeof value === 'object' && value !== null && Reflect.get(value, '_bsontype') === 'Long'
}
