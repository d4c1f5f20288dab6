import { instant, type Clock, type Instant } from '../../clock.ts'
import type { LeaseRequest } from '../../engine.ts'
import { NotConnectedError, UnknownOutcomeError } from './errors.ts'
import { leftLeaseInTheWay } from './left-leases.ts'
import type { SessionScope } from './session-scope.ts'
import type { QueueEntry, ResourceFolder } from './steps.ts'

export interface QueueTurn {
  readonly entry: QueueEntry
  readonly since: Instant
  /** Others wait behind us. */
  readonly crowded: boolean
}

interface QueueWait {
  readonly signal: AbortSignal
  readonly withinMs: number
  readonly clock: Clock
}

/** The znode before ours, and since when it has not been written. */
interface UnchangedZnode {
  readonly path: string
  readonly version: number
  readonly sinceMs: number
}

/** A watch that is lost would never wake us, so we look again after this part of a session. */
const LOOK_PART = 1 / 2

/**
 * Waits in the queue until nobody is before us; for a shared lease, nobody but others who share. That is proved after the wait.
 * A lost connection does not cost the place; only the end of the session does. Rejects when the signal aborts. Our znodes may
 * then still exist; `entered` was called if they are known. `place`: one that we have already.
 */
export async function waitInQueue(
  scope: SessionScope,
  request: LeaseRequest,
  wait: QueueWait,
  place: QueueEntry | undefined,
  entered: (entry: QueueEntry) => void,
): Promise<QueueTurn> {
  const { steps, znodes, session } = scope
  const { signal, withinMs, clock } = wait
  const { resources, ttlMs } = request
  let entry = place
  let before: UnchangedZnode | undefined
  let doubtful = false
  for (;;) {
    signal.throwIfAborted()
    if (session.over !== undefined) throw session.over
    try {
      if (entry === undefined) {
        entry = doubtful ? await enteredBefore(scope, request, withinMs) : undefined
        entry ??= await steps.enter(request, withinMs)
        entered(entry)
      }
      const folders = await steps.look(resources, withinMs)
      const path = predecessor(scope, request, entry, folders)
      if (path !== undefined) {
        before = await untilGone(scope, path, before, wait)
        continue
      }
      const left = await leftLeaseInTheWay(scope, resources, folders, withinMs)
      if (left !== undefined) {
        await untilWoken(scope, wait, async () => left.ms)
        continue
      }
      const since = instant(clock)
      await znodes.write(
        entry.paths.map((path) => [path, { ttlMs, heldMs: 0 }]),
        withinMs,
      )
      return { entry, since, crowded: folders.some(({ places }) => places.length > 1) }
    } catch (error) {
      if (!(error instanceof UnknownOutcomeError || error instanceof NotConnectedError)) throw error
      doubtful = true
      if (session.over === undefined) await untilWoken(scope, wait, async () => (session.connected ? 0 : Infinity))
    }
  }
}

/** The connection was lost before we knew whether we have a place in the queue. */
async function enteredBefore(
  scope: SessionScope,
  request: LeaseRequest,
  withinMs: number,
): Promise<QueueEntry | undefined> {
  await scope.steps.settle(withinMs)
  return scope.steps.find(request, withinMs)
}

/**
 * The znode right before ours in one of the queues; for a shared lease, the last exclusive one before ours. Only its end concerns
 * us, so no other one is watched.
 */
function predecessor(
  { steps }: SessionScope,
  { resources, shared: isReader = false }: LeaseRequest,
  { paths }: QueueEntry,
  folders: readonly ResourceFolder[],
): string | undefined {
  let before: string | undefined
  for (const [index, { places }] of folders.entries()) {
    const folder = steps.folder(resources[index]!)
    const own = places.findIndex(({ name }) => `${folder}/${name}` === paths[index])
    if (own < 0) throw new Error('our place in the queue was removed')
    const last = places.slice(0, own).findLast(({ shared }) => !(shared && isReader))
    if (last !== undefined) before ??= `${folder}/${last.name}`
  }
  return before
}

/**
 * Waits for a change of the znode before ours. A holder writes to its znode with every renewal, and counts its validity from
 * before that. So if nothing was written for a whole ttl, by our own clock and since we first saw this version, the lease is
 * over. The session of its process may not be: it lasts longer. We then remove the znode, unless it was written in between.
 */
async function untilGone(
  scope: SessionScope,
  path: string,
  before: UnchangedZnode | undefined,
  wait: QueueWait,
): Promise<UnchangedZnode | undefined> {
  const { znodes, session } = scope
  const { clock, withinMs } = wait
  let seen: UnchangedZnode | undefined
  await untilWoken(scope, wait, async (wake, onEnd) => {
    onEnd(() => session.unwatch(path, wake))
    const found = await znodes.watch(path, wake, withinMs)
    if (found === undefined) return 0
    const { version } = found.stat
    const same = before?.path === path && before.version === version
    seen = { path, version, sinceMs: same ? before.sinceMs : clock.monotonicMs() }
    const lookMs = session.timeoutMs * LOOK_PART
    // A waiter, or other software, does not write to its znode.
    if (found.data?.heldMs === undefined) return lookMs
    const leftMs = found.data.ttlMs - (clock.monotonicMs() - seen.sinceMs)
    if (leftMs > 0) return Math.min(leftMs, lookMs)
    await znodes.remove(path, withinMs, version)
    return 0
  })
  return seen
}

/** Waits until `arm` calls back, the connection is replaced, the wait is aborted, or the time that `arm` returns has passed. */
async function untilWoken(
  { session }: SessionScope,
  { signal, clock }: QueueWait,
  arm: (wake: () => void, onEnd: (end: () => void) => void) => Promise<number>,
): Promise<void> {
  let wake!: () => void
  const woken = new Promise<void>((resolve) => (wake = resolve))
  const ends = [session.onReconnected(wake), () => signal.removeEventListener('abort', wake)]
  signal.addEventListener('abort', wake)
  try {
    const ms = await arm(wake, (end) => ends.push(end))
    if (ms <= 0 || signal.aborted) return
    if (ms < Infinity) {
      const timer = clock.timer(wake, ms, true)
      ends.push(() => timer.cancel())
    }
    await woken
  } finally {
    for (const end of ends) end()
  }
}
