import type { LeaseRequest, Refusal } from '../../engine.ts'
import { CODE, isCode } from './driver.ts'
import type { Entry, Folder } from './line.ts'
import type { Seat } from './seat.ts'
import { leftInTheWay } from './left.ts'

export interface Won {
  readonly kind: 'won'
  readonly entry: Entry
  /** Others stand behind us. */
  readonly crowded: boolean
}

/** One attempt, without standing in line. When it rejects, our nodes may be there. */
export async function attempt(seat: Seat, request: LeaseRequest, withinMs: number): Promise<Won | Refusal> {
  const { line, nodes } = seat
  const { resources, owner, ttlMs } = request
  const alone = await line.enterAlone(request, withinMs).catch(async (error: unknown) => {
    if (!isCode(error, CODE.noNode)) throw error
    await seat.prepareAgain(withinMs)
    return line.enterAlone(request, withinMs)
  })
  if (alone !== undefined) return { kind: 'won', entry: alone, crowded: false }
  const refused = await refusal(seat, resources, await line.look(resources, withinMs), withinMs)
  if (refused !== undefined) return refused
  // Folders without anyone in them: someone died there, or is just leaving.
  const entry = await line.enter(request, withinMs)
  const folders = await line.look(resources, withinMs)
  const others = folders.map((folder) => ({
    ...folder,
    places: folder.places.slice(
      0,
      folder.places.findIndex((place) => place.owner === owner),
    ),
  }))
  const before = await refusal(seat, resources, others, withinMs)
  if (before !== undefined) {
    await line.remove(resources, entry.paths, withinMs, true)
    return before
  }
  await nodes.write(
    entry.paths.map((path) => [path, { ttlMs, heldMs: 0 }]),
    withinMs,
  )
  return { kind: 'won', entry, crowded: folders.some(({ places }) => places.length > 1) }
}

/** Who is in the way, and for how long at most if nobody renews that. Undefined if nobody is. */
async function refusal(
  seat: Seat,
  resources: readonly string[],
  folders: readonly Folder[],
  withinMs: number,
): Promise<Refusal | undefined> {
  const { line, nodes } = seat
  const first = folders.findIndex(({ places }) => places.length > 0)
  if (first < 0) {
    const left = await leftInTheWay(seat, resources, folders, withinMs)
    return left && { kind: 'refused', reason: 'held', holder: left.owner, remainingMs: left.ms }
  }
  const { name, owner: holder } = folders[first]!.places[0]!
  const found = await nodes.read(`${line.folder(resources[first]!)}/${name}`, withinMs)
  if (found?.note === undefined) return { kind: 'refused', reason: 'held', holder }
  // Its time may be up and its node still there: its process is dead, and its session not yet.
  return { kind: 'refused', reason: 'held', holder, remainingMs: Math.max(found.note.ttlMs - found.ageMs, 1) }
}
