import { instant, type Clock, type Instant } from '../../clock.ts'
import type { LeaseRequest } from '../../engine.ts'
import { NotConnectedError, UnansweredError } from './driver.ts'
import { leftInTheWay } from './left.ts'
import type { Entry, Folder } from './line.ts'
import type { Seat } from './seat.ts'

export interface Turn {
  readonly entry: Entry
  readonly since: Instant
  /** Others stand behind us. */
  readonly crowded: boolean
}

interface Wait {
  readonly signal: AbortSignal
  readonly withinMs: number
  readonly clock: Clock
}

/** The node before ours, and since when it has not been written. */
interface Unchanged {
  readonly path: string
  readonly version: number
  readonly sinceMs: number
}

/** A watch that got lost on its way would never wake us; so we look for ourselves, this part of a session apart. */
const LOOK_PART = 1 / 2

/**
 * Stands in line until it is our turn, proved after the wait. A lost connection costs no place, only the end of the
 * session does. Rejects when the signal aborts; our nodes may then be there still, and `entered` was told if they are known.
 */
export async function standInLine(
  seat: Seat,
  request: LeaseRequest,
  wait: Wait,
  entered: (entry: Entry) => void,
): Promise<Turn> {
  const { line, nodes, session } = seat
  const { signal, withinMs, clock } = wait
  const { resources, ttlMs } = request
  let entry: Entry | undefined
  let before: Unchanged | undefined
  let doubtful = false
  for (;;) {
    signal.throwIfAborted()
    if (session.over !== undefined) throw session.over
    try {
      if (entry === undefined) {
        entry = doubtful ? await enteredBefore(seat, request, withinMs) : undefined
        entry ??= await line.enter(request, withinMs)
        entered(entry)
      }
      const folders = await line.look(resources, withinMs)
      const path = predecessor(seat, resources, entry, folders)
      if (path !== undefined) {
        before = await untilGone(seat, path, before, wait)
        continue
      }
      const left = await leftInTheWay(seat, resources, folders, withinMs)
      if (left !== undefined) {
        await untilWoken(seat, wait, async () => left.ms)
        continue
      }
      const since = instant(clock)
      await nodes.write(
        entry.paths.map((path) => [path, { ttlMs, heldMs: 0 }]),
        withinMs,
      )
      return { entry, since, crowded: folders.some(({ places }) => places.length > 1) }
    } catch (error) {
      if (!(error instanceof UnansweredError || error instanceof NotConnectedError)) throw error
      doubtful = true
      if (session.over === undefined) await untilConnected(seat, signal)
    }
  }
}

/** The connection was lost before we knew whether we stand in line. */
async function enteredBefore(seat: Seat, request: LeaseRequest, withinMs: number): Promise<Entry | undefined> {
  await seat.line.settle(withinMs)
  return seat.line.find(request, withinMs)
}

/** The node right before ours in one of the lines. Nobody else's end concerns us, so nobody else is watched. */
function predecessor(
  { line }: Seat,
  resources: readonly string[],
  { paths }: Entry,
  folders: readonly Folder[],
): string | undefined {
  let before: string | undefined
  for (const [index, { places }] of folders.entries()) {
    const folder = line.folder(resources[index]!)
    const own = places.findIndex(({ name }) => `${folder}/${name}` === paths[index])
    if (own < 0) throw new Error('our place in the line was removed')
    if (own > 0) before ??= `${folder}/${places[own - 1]!.name}`
  }
  return before
}

/**
 * Waits for a change of the node before ours. Whoever holds a lease writes on its node with every renewal, and counts
 * its validity from before that. So if nothing was written for a whole ttl, on our own clock and since we first saw it
 * so, the lease is over, although the session of its process may not be: that lasts longer. We then remove the node,
 * unless it was written in between.
 */
async function untilGone(
  seat: Seat,
  path: string,
  before: Unchanged | undefined,
  wait: Wait,
): Promise<Unchanged | undefined> {
  const { nodes, session } = seat
  const { clock, withinMs } = wait
  let seen: Unchanged | undefined
  await untilWoken(seat, wait, async (wake, onEnd) => {
    onEnd(() => session.unwatch(path, wake))
    const sight = await nodes.watch(path, wake, withinMs)
    if (sight === undefined) return 0
    const { version } = sight.stat
    const same = before?.path === path && before.version === version
    seen = { path, version, sinceMs: same ? before.sinceMs : clock.monotonicMs() }
    const lookMs = session.timeoutMs * LOOK_PART
    // One who waits, or other software, does not write on its node.
    if (sight.note?.heldMs === undefined) return lookMs
    const leftMs = sight.note.ttlMs - (clock.monotonicMs() - seen.sinceMs)
    if (leftMs > 0) return Math.min(leftMs, lookMs)
    await nodes.remove(path, withinMs, version)
    return 0
  })
  return seen
}

/** Until `arm` calls back, the connection is another one, the wait is aborted, or the time is over that it answers. */
async function untilWoken(
  { session }: Seat,
  { signal, clock }: Wait,
  arm: (wake: () => void, onEnd: (end: () => void) => void) => Promise<number>,
): Promise<void> {
  let wake!: () => void
  const woken = new Promise<void>((resolve) => (wake = resolve))
  const ends = [session.onReconnected(wake), () => signal.removeEventListener('abort', wake)]
  signal.addEventListener('abort', wake)
  try {
    const ms = await arm(wake, (end) => ends.push(end))
    if (ms <= 0 || signal.aborted) return
    const timer = clock.timer(wake, ms, true)
    ends.push(() => timer.cancel())
    await woken
  } finally {
    for (const end of ends) end()
  }
}

async function untilConnected(seat: Seat, signal: AbortSignal): Promise<void> {
  const { session } = seat
  if (session.connected || signal.aborted) return
  await new Promise<void>((resolve) => {
    const done = (): void => {
      forget()
      signal.removeEventListener('abort', done)
      resolve()
    }
    const forget = session.onReconnected(done)
    signal.addEventListener('abort', done)
  })
}
