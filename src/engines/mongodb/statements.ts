import { READERS } from '../shared/readers.ts'
import { property } from '../shared/shape.ts'
import { WANTED_MS } from '../shared/wanted.ts'

/*
 * The document of a resource has the resource's name as its `_id`. It is never deleted, because `token` must only grow:
 *
 *   held     { _id, token, owner, since, until }
 *   shared   { _id, token, owner: READERS, since, until, readers: [{ owner, token, since, until }] }; `until` is the latest end
 *   free     { _id, token, owner: null }, or `until` has passed
 *
 * While `wanted` is in the future, a writer keeps new readers out. The writer's grant removes it, and all readers.
 *
 * Every step is one update by an aggregation pipeline, so the server decides and writes in one atomic operation, by its own
 * clock (`$$NOW`, which is the same throughout a command).
 */

/** The lease has not ended. A document without `until` is free: a missing value is less than any other. */
const LIVE = { $gt: ['$until', '$$NOW'] }
const IS_READERS = { $eq: ['$owner', READERS] }
const IS_WANTED = { $gt: ['$wanted', '$$NOW'] }

/** 64 bits, also if a restored backup has it as a shorter number. */
const COUNTER = { $toLong: { $ifNull: ['$token', 0] } }

/** What a read returns. Both spans are computed by the server's clock, so our clock plays no part. */
export const SHOWN = {
  owner: 1,
  token: 1,
  leftMs: { $subtract: ['$until', '$$NOW'] },
  heldMs: { $subtract: ['$$NOW', '$since'] },
  readers: 1,
  wantedMs: { $subtract: ['$wanted', '$$NOW'] },
  now: '$$NOW',
}

/** What a read before a grant returns: the same, and a counter that is none makes it fail. */
export const LOOKED_AT = { ...SHOWN, token: COUNTER }

/** No text is a number. */
const FAIL = { $toLong: { $concat: ['ringfence: taken meanwhile: ', '$_id'] } }

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
 * grown meanwhile, the statement fails.
 */
export function takeWith(token: bigint, owner: string, ttlMs: number): object[] {
  const isOthers = { $and: [LIVE, { $ne: ['$owner', { $literal: owner }] }] }
  const isTaken = { $or: [isOthers, { $gte: [COUNTER, token] }] }
  return [{ $replaceWith: { $cond: [isTaken, FAIL, granted(owner, ttlMs, token)] } }]
}

/** Grants a resource to the next owner; the filter is `ownedBy` the previous one. */
export function passOn(owner: string, ttlMs: number, token?: bigint): object[] {
  return [{ $replaceWith: granted(owner, ttlMs, token) }]
}

/** Without a token: the next one. */
function granted(owner: string, ttlMs: number, token?: bigint): object {
  return {
    _id: '$_id',
    token: token ?? { $add: [COUNTER, 1] },
    // As a literal: '$until' would be read as the name of a field.
    owner: { $literal: owner },
    since: '$$NOW',
    until: { $add: ['$$NOW', ttlMs] },
  }
}

/** As `take`, for a reader. One that joins others gets their token: there was no writer in between. */
export function share(owner: string, ttlMs: number): object[] {
  const isOpen = { $and: [{ $not: [IS_WANTED] }, { $or: [{ $not: [LIVE] }, IS_READERS] }] }
  const counter = { $cond: [{ $and: [LIVE, IS_READERS] }, COUNTER, { $add: [COUNTER, 1] }] }
  const joined = { $cond: [{ $or: [isReader([owner]), isOpen] }, withReader(owner, ttlMs, counter), '$$ROOT'] }
  return [{ $replaceWith: joined }]
}

/** As `takeWith`, for a reader. A resource that others share may have this token already. */
export function shareWith(token: bigint, owner: string, ttlMs: number): object[] {
  const isShared = { $and: [LIVE, IS_READERS] }
  const isAhead = { $cond: [isShared, { $gt: [COUNTER, token] }, { $gte: [COUNTER, token] }] }
  const isClosed = { $or: [IS_WANTED, { $and: [LIVE, { $not: [IS_READERS] }] }, isAhead] }
  return [{ $replaceWith: { $cond: [isClosed, FAIL, withReader(owner, ttlMs, token)] } }]
}

/** The others who are still there, and this one, which keeps its token if it was there already. */
function withReader(owner: string, ttlMs: number, token: object | bigint): object {
  const isOwn = { $eq: ['$$r.owner', { $literal: owner }] }
  const until = { $add: ['$$NOW', ttlMs] }
  const own = {
    owner: { $literal: owner },
    token: { $ifNull: [{ $first: '$$own.token' }, token] },
    since: '$$NOW',
    until,
  }
  return {
    $let: {
      vars: { own: liveReaders(isOwn), others: liveReaders({ $not: [isOwn] }) },
      in: {
        _id: '$_id',
        token,
        owner: READERS,
        since: '$$NOW',
        until: { $max: { $concatArrays: ['$$others.until', [until]] } },
        readers: { $concatArrays: ['$$others', [own]] },
        wanted: '$wanted',
      },
    },
  }
}

/** One of the owners is a reader. */
function isReader(owners: readonly string[]): object {
  return { $gt: [{ $size: liveReaders({ $in: ['$$r.owner', { $literal: owners }] }) }, 0] }
}

/** Those that have not ended, of all or of which this is true. */
function liveReaders(which: object | true = true): object {
  const isLive = { $gt: ['$$r.until', '$$NOW'] }
  return { $filter: { input: { $ifNull: ['$readers', []] }, as: 'r', cond: { $and: [isLive, which] } } }
}

/** Filters the resources that one of the owners holds alone now. */
export function ownedBy(resources: readonly string[], owners: readonly string[]): object {
  return { _id: oneOf(resources), owner: oneOf(owners), $expr: LIVE }
}

/** Filters the resources that one of the owners holds now, alone or with others. */
export function heldBy(resources: readonly string[], owners: readonly string[]): object {
  const isHeld = { $or: [{ $in: ['$owner', { $literal: owners }] }, isReader(owners)] }
  return { _id: oneOf(resources), $expr: { $and: [LIVE, isHeld] } }
}

/** Filters the resource if the owner is a reader of it now. */
export function readBy(resource: string, owner: string): object {
  return { _id: resource, $expr: isReader([owner]) }
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

/** The reader ends later, or earlier, and no other does. */
export function extendedReader(owner: string, ttlMs: number): object[] {
  const later = { $mergeObjects: ['$$r', { until: { $add: ['$$NOW', ttlMs] } }] }
  const renewed = { $cond: [{ $eq: ['$$r.owner', { $literal: owner }] }, later, '$$r'] }
  return [
    { $set: { readers: { $map: { input: liveReaders(), as: 'r', in: renewed } } } },
    { $set: { until: { $max: '$readers.until' } } },
  ]
}

/** Ends the leases of these owners. If readers are left, it stays theirs. The counter stays. */
export function freed(owners: readonly string[]): object[] {
  const left = liveReaders({ $not: [{ $in: ['$$r.owner', { $literal: owners }] }] })
  const shared = { $mergeObjects: ['$$ROOT', { readers: '$$left', until: { $max: '$$left.until' } }] }
  const free = { _id: '$_id', token: '$token', owner: null, wanted: '$wanted' }
  const next = { $cond: [{ $gt: [{ $size: '$$left' }, 0] }, shared, free] }
  return [{ $replaceWith: { $let: { vars: { left }, in: next } } }]
}

/** A writer keeps new readers out. */
export const WANTED: object[] = [{ $set: { wanted: { $add: ['$$NOW', WANTED_MS] } } }]

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

/** Someone who holds a resource. */
export interface LeaseHolder {
  readonly owner: string
  readonly token: bigint
  /** Unknown when the driver has repeated a request: the server remembers its answer without the computed fields. */
  readonly leftMs: number | undefined
  readonly heldMs: number | undefined
}

/** A document as the projection `SHOWN` returns it. The owner of one that readers share is READERS, that of a free one is empty. */
export interface LeaseDocument extends LeaseHolder {
  readonly resource: string
  /** Those that have not ended. */
  readonly readers: readonly LeaseHolder[]
  /** How much longer a writer keeps new readers out. */
  readonly wantedMs: number
}

export function leaseOrThrow(document: unknown): LeaseDocument {
  const { _id, owner, token, leftMs, heldMs, readers, wantedMs, now } = (document ?? {}) as Record<string, unknown>
  const all = owner === READERS && Array.isArray(readers) ? readers : []
  return {
    resource: String(_id),
    owner: typeof owner === 'string' ? owner : '',
    token: wholeOrThrow(token, `the token of '${String(_id)}'`),
    leftMs: numberOf(leftMs),
    heldMs: numberOf(heldMs),
    readers: all.map((reader) => readerOrThrow(reader, now)).filter(({ leftMs: left = 1 }) => left > 0),
    wantedMs: numberOf(wantedMs) ?? 0,
  }
}

function readerOrThrow(reader: unknown, now: unknown): LeaseHolder {
  const { owner, token, since, until } = reader as Record<string, unknown>
  return {
    owner: String(owner),
    token: wholeOrThrow(token, `the token of the reader '${String(owner)}'`),
    leftMs: spanMs(now, until),
    heldMs: spanMs(since, now),
  }
}

function spanMs(from: unknown, to: unknown): number | undefined {
  return from instanceof Date && to instanceof Date ? to.getTime() - from.getTime() : undefined
}

/** Who holds it: the owner of the document, or those that share it. What has ended, as far as that is known, is not among them. */
export function holdersOf(document: LeaseDocument): readonly LeaseHolder[] {
  const { owner, readers, leftMs = 1 } = document
  if (owner === READERS) return readers
  return owner !== '' && leftMs > 0 ? [document] : []
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
