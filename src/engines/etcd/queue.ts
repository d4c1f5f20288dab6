import { backOffMs } from '../../back-off.ts'
import { elapsedMs, instant, sleep } from '../../clock.ts'
import type { LeaseRequest, QueuedGrant } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { base64 } from '../shared/http/text.ts'
import { created, put, rangeFields, rangeRequest, type EtcdJson } from './client.ts'
import type { EtcdCall } from './engine.ts'
import { EtcdError, etcdFailure } from './errors.ts'
import { ownLeaseId, valueText, type KeyRange } from './keys.ts'

/** A waiter looks again after this time at the latest: the member that it listens to may hang. */
const LONGEST_SILENCE_MS = 5000
/** Between two tries while the servers do not answer. */
const RETRY = { firstMs: 100, mostMs: 1000 }

/** A request and its place in the queue. */
export interface EtcdPlace extends LeaseRequest {
  /** Known when the place is taken. */
  token?: bigint
}

/**
 * Takes a place in the queue, unless there is one, and resolves when nobody is before it in any folder, proved after the wait; for a shared lease,
 * nobody but others who share. Revisions put the places of all requests in one order, so no two requests can wait for each
 * other.
 */
export async function waitInQueue(
  call: EtcdCall,
  place: EtcdPlace,
  signal: AbortSignal,
  failing: LeaseRequest['failing'],
): Promise<QueuedGrant> {
  const { client, clock, random } = call
  const { ttlMs } = place
  let heard = instant(clock)
  let failures = 0
  for (;;) {
    signal.throwIfAborted()
    const since = instant(clock)
    try {
      const token = (place.token ??= await takePlace(call, place))
      const seen = await look(call, place, token)
      signal.throwIfAborted()
      heard = since
      failing?.(undefined)
      if (seen.kind === 'first') return { kind: 'granted', token, since }
      if (seen.kind === 'behind') await predecessorGone(call, seen, ttlMs, signal)
      failures = 0
    } catch (error) {
      if (signal.aborted || !isTransient(error)) throw error
      if (client.endpoints.closed)
        throw new EngineError('etcd: this engine is closed; make a new one', place.resources, {
          cause: error,
          transient: false,
        })
      // Nothing could be proved for a whole ttl: the place may be gone, and the caller should learn why.
      if (elapsedMs(clock, heard) > ttlMs) throw error
      // The end of the watch alone says nothing: another member may answer.
      if (heard !== since) failing?.(etcdFailure(error, place.resources))
      await sleep(clock, backOffMs(random, RETRY, failures++), signal)
    }
  }
}

function isTransient(error: unknown): boolean {
  if (error instanceof EngineError) return false
  return !(error instanceof EtcdError) || !error.isPermanent
}

/** Safe to repeat: keys that exist already stay as they are. */
async function takePlace({ client, steps, keys, clock, timeoutMs }: EtcdCall, request: LeaseRequest): Promise<bigint> {
  const { resources, owner, ttlMs, waitedMs = 0 } = request
  const own = keys.own(request)
  const value = valueText({ ttlMs, waitsSinceMs: Math.round(clock.wallMs() - waitedMs) })
  await steps.grantLease({ owner, ttlMs }, timeoutMs)
  const { header, succeeded, results } = await client.transact(
    own.map((key) => created({ key: base64(key) }, '0')),
    own.map((key) => put(key, value, ownLeaseId({ owner, ttlMs }))),
    [rangeRequest({ key: base64(own[0]!) })],
    timeoutMs,
  )
  if (succeeded) return header.revision
  const mine = results[0]?.[0]
  if (mine === undefined)
    throw new EngineError(
      'etcd: a part of our place in the queue was removed by someone else; call again, and find out who deletes keys below the prefix',
      resources,
    )
  return mine.createRevision
}

type QueueView =
  | { readonly kind: 'first' }
  | { readonly kind: 'behind'; readonly key: string; readonly revision: bigint }
  | { readonly kind: 'unproved' }

/** Renews our etcd lease and sees who is before us. `EtcdSteps.prove` explains the order of the two, and what the term is for. */
async function look(call: EtcdCall, request: LeaseRequest, token: bigint): Promise<QueueView> {
  const { client, steps, keys, timeoutMs } = call
  const { resources, shared = false } = request
  if (shared) return lookForWriters(call, request, token)
  const alive = await steps.keepAlive(ownLeaseId(request), timeoutMs)
  const { header, found } = await client.read(upTo(token, resources.map(keys.folder), 2), timeoutMs)
  const own = keys.own(request)
  if (alive === undefined || found.some(([mine], index) => mine?.key !== own[index])) throw gone(resources)
  const before = found.map(([, other]) => other).find((other) => other !== undefined)
  if (before !== undefined) return { kind: 'behind', key: before.key, revision: header.revision }
  return alive.term === header.term ? { kind: 'first' } : { kind: 'unproved' }
}

/** The same for a shared lease. Our own keys are not in the range that decides, so they are proved by themselves. */
async function lookForWriters(
  { client, steps, keys, timeoutMs }: EtcdCall,
  request: LeaseRequest,
  token: bigint,
): Promise<QueueView> {
  const { resources } = request
  const [proof] = await steps.prove([{ ...request, token }], timeoutMs)
  if (proof!.kind === 'unknown') throw proof!.cause
  if (proof!.kind !== 'held') throw gone(resources)
  const { header, found } = await client.read(upTo(token, resources.map(keys.exclusive), 1), timeoutMs)
  const [before] = found.flat()
  return before === undefined ? { kind: 'first' } : { kind: 'behind', key: before.key, revision: header.revision }
}

/** The last keys of each range that were created up to that revision. */
function upTo(revision: bigint, ranges: readonly KeyRange[], limit: number): object[] {
  return ranges.map((range) => ({
    ...rangeFields(range),
    max_create_revision: String(revision),
    sort_target: 'CREATE',
    sort_order: 'DESCEND',
    limit: String(limit),
    keys_only: true,
  }))
}

function gone(resources: readonly string[]): EngineError {
  return new EngineError(
    'etcd: our place in the queue is gone: its lease ran out, or someone deleted its key; call again',
    resources,
  )
}

/** Resolves when the key is deleted after that revision, or when it is time to look again. */
async function predecessorGone(
  { client, clock, timeoutMs }: EtcdCall,
  { key, revision }: { readonly key: string; readonly revision: bigint },
  ttlMs: number,
  signal: AbortSignal,
): Promise<void> {
  const enough = new AbortController()
  const stop = (): void => enough.abort()
  signal.addEventListener('abort', stop)
  const timer = clock.timer(stop, Math.min(ttlMs / 3, LONGEST_SILENCE_MS))
  try {
    if (signal.aborted) return
    const create = { key: base64(key), start_revision: String(revision + 1n), filters: ['NOPUT'] }
    for await (const answer of client.stream('watch', { create_request: create }, timeoutMs, enough.signal)) {
      const { events, canceled, compact_revision: compacted, cancel_reason: why } = (answer['result'] ?? {}) as EtcdJson
      if (Array.isArray(events) && events.length > 0) return
      // etcd has compacted that part of the history: look again at what there is now.
      if (compacted !== undefined) return
      if (canceled === true) throw new Error(`the server refused the watch: ${JSON.stringify(why)}`)
    }
    throw new Error('the server ended the watch')
  } catch (error) {
    if (!enough.signal.aborted) throw error
  } finally {
    timer.cancel()
    signal.removeEventListener('abort', stop)
  }
}
