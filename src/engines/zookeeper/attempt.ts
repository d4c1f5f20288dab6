import type { LeaseRequest, Refusal } from '../../engine.ts'
import { CODE, isCode } from './errors.ts'
import { leftLeaseInTheWay } from './left-leases.ts'
import type { SessionScope } from './session-scope.ts'
import type { QueueEntry, ResourceFolder } from './steps.ts'

export interface WonAttempt {
  readonly kind: 'won'
  readonly entry: QueueEntry
  /** Others wait behind us. */
  readonly crowded: boolean
}

/** One attempt, without a place in the queue. When it rejects, our znodes may exist. */
export async function attempt(
  scope: SessionScope,
  request: LeaseRequest,
  withinMs: number,
): Promise<WonAttempt | Refusal> {
  const { steps, znodes } = scope
  const { resources, owner, ttlMs } = request
  const alone = await steps.enterAlone(request, withinMs).catch(async (error: unknown) => {
    if (!isCode(error, CODE.noNode)) throw error
    await scope.prepareAgain(withinMs)
    return steps.enterAlone(request, withinMs)
  })
  if (alone !== undefined) return { kind: 'won', entry: alone, crowded: false }
  const refused = await refusal(scope, request, await steps.look(resources, withinMs), withinMs)
  if (refused !== undefined) return refused
  // The folders have only those with whom we share: none at all if an owner died there, or is just leaving.
  const entry = await steps.enter(request, withinMs)
  const folders = await steps.look(resources, withinMs)
  const others = folders.map((folder) => ({
    ...folder,
    places: folder.places.slice(
      0,
      folder.places.findIndex((place) => place.owner === owner),
    ),
  }))
  const before = await refusal(scope, request, others, withinMs)
  if (before !== undefined) {
    await steps.remove(resources, entry.paths, withinMs, true)
    return before
  }
  await znodes.write(
    entry.paths.map((path) => [path, { ttlMs, heldMs: 0 }]),
    withinMs,
  )
  return { kind: 'won', entry, crowded: folders.some(({ places }) => places.length > 1) }
}

/** Who is in the way, and for how long at most unless that lease is renewed. Returns undefined if nobody is. */
async function refusal(
  scope: SessionScope,
  { resources, shared: isReader = false }: LeaseRequest,
  folders: readonly ResourceFolder[],
  withinMs: number,
): Promise<Refusal | undefined> {
  const { steps, znodes } = scope
  const first = folders.findIndex(({ places }) => places.some(({ shared }) => !(shared && isReader)))
  if (first < 0) {
    const left = await leftLeaseInTheWay(scope, resources, folders, withinMs)
    return left && { kind: 'refused', reason: 'held', holder: left.owner, remainingMs: left.ms }
  }
  const { name, owner: holder } = folders[first]!.places[0]!
  const found = await znodes.read(`${steps.folder(resources[first]!)}/${name}`, withinMs)
  if (found?.data === undefined) return { kind: 'refused', reason: 'held', holder }
  // Its time may be up while its znode still exists: its process is dead, and its session has not ended yet.
  return { kind: 'refused', reason: 'held', holder, remainingMs: Math.max(found.data.ttlMs - found.ageMs, 1) }
}
