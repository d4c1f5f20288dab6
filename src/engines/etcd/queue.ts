import { elapsedMs, instant, sleep, type Clock } from '../../clock.ts'
import type { LeaseRequest, QueuedGrant } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { base64, created, EtcdError, put, within, type Gateway, type Json } from './gateway.ts'
import { leaseIdOf, secondsOf, valueText, type Keys } from './keys.ts'
import type { EtcdLeases } from './leases.ts'

export interface Line {
  readonly gateway: Gateway
  readonly leases: EtcdLeases
  readonly keys: Keys
  readonly clock: Clock
  readonly random: Random
  readonly timeoutMs: number
}

/** A waiter looks again after this time even if it hears nothing: the member that it listens to may hang. */
const LONGEST_SILENCE_MS = 5000
/** Between two tries while the servers don't answer: up to so long, growing. */
const LONGEST_PAUSE_MS = 1000

/**
 * Takes a place in the queue and resolves when it is the first one in all folders, proved after the wait. The places of
 * all requests are in one order, that of revisions, so no two can wait for each other.
 */
export async function waitInLine(line: Line, request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
  const { clock, random } = line
  const { ttlMs } = request
  let token: bigint | undefined
  let heard = instant(clock)
  let failures = 0
  for (;;) {
    signal.throwIfAborted()
    const since = instant(clock)
    try {
      token ??= await takePlace(line, request)
      const seen = await look(line, request, token)
      signal.throwIfAborted()
      heard = since
      if (seen.kind === 'first') return { kind: 'granted', token, since }
      if (seen.kind === 'behind') await predecessorGone(line, seen, ttlMs, signal)
      failures = 0
    } catch (error) {
      if (signal.aborted || !isPassing(error)) throw error
      if (line.gateway.endpoints.closed)
        throw new EngineError('etcd: closed', request.resources, { cause: error, transient: false })
      // Nothing could be proved for a whole ttl: the place may be gone, and whoever waits should hear why.
      if (elapsedMs(clock, heard) > ttlMs) throw error
      const mostMs = Math.min(100 * 2 ** Math.min(failures++, 10), LONGEST_PAUSE_MS)
      await sleep(clock, mostMs * (0.5 + 0.5 * random.fraction()), signal)
    }
  }
}

function isPassing(error: unknown): boolean {
  if (error instanceof EngineError) return false
  return !(error instanceof EtcdError) || error.transient
}

/** Repeatable: keys that are there already are left as they are. */
async function takePlace(line: Line, { resources, owner, ttlMs }: LeaseRequest): Promise<bigint> {
  const { gateway, leases, keys, timeoutMs } = line
  const id = leaseIdOf(owner, secondsOf(ttlMs))
  const own = keys.own(resources, owner)
  await leases.grant(id, secondsOf(ttlMs), timeoutMs)
  const { header, succeeded, results } = await gateway.transact(
    own.map((key) => created({ key: base64(key) }, '0')),
    own.map((key) => put(key, valueText({ ttlMs }), id)),
    [{ request_range: { key: base64(own[0]!) } }],
    timeoutMs,
  )
  if (succeeded) return header.revision
  const mine = results[0]?.[0]
  if (mine === undefined) throw new EngineError('etcd: a part of our place in the queue was removed', resources)
  return mine.createRevision
}

type Seen =
  | { readonly kind: 'first' }
  | { readonly kind: 'behind'; readonly key: string; readonly revision: bigint }
  | { readonly kind: 'unproved' }

/** Renews our etcd lease and sees who is before us; see `prove` for why in this order, and what the term is for. */
async function look(line: Line, { resources, owner, ttlMs }: LeaseRequest, token: bigint): Promise<Seen> {
  const { gateway, leases, keys, timeoutMs } = line
  const alive = await leases.keepAlive(leaseIdOf(owner, secondsOf(ttlMs)), timeoutMs)
  const ranges = resources.map((resource) => ({
    ...within(keys.folder(resource)),
    max_create_revision: String(token),
    sort_target: 'CREATE',
    sort_order: 'DESCEND',
    limit: '2',
    keys_only: true,
  }))
  const { header, found } = await gateway.read(ranges, timeoutMs)
  const own = keys.own(resources, owner)
  if (alive === undefined || found.some(([mine], index) => mine?.key !== own[index]))
    throw new EngineError('etcd: our place in the queue is gone', resources)
  const before = found.map(([, other]) => other).find((other) => other !== undefined)
  if (before !== undefined) return { kind: 'behind', key: before.key, revision: header.revision }
  return alive.term === header.term ? { kind: 'first' } : { kind: 'unproved' }
}

/** Resolves when the key was deleted after that revision, and at the latest when it is time to look again. */
async function predecessorGone(
  { gateway, clock, timeoutMs }: Line,
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
    for await (const answer of gateway.stream('watch', { create_request: create }, timeoutMs, enough.signal)) {
      const { events, canceled, compact_revision: compacted, cancel_reason: why } = (answer['result'] ?? {}) as Json
      if (Array.isArray(events) && events.length > 0) return
      // That part of the history is gone: look again at what is now.
      if (compacted !== undefined) return
      if (canceled === true) throw new Error(`the watch was refused: ${JSON.stringify(why)}`)
    }
    throw new Error('the watch was ended by the server')
  } catch (error) {
    if (!enough.signal.aborted) throw error
  } finally {
    timer.cancel()
    signal.removeEventListener('abort', stop)
  }
}
