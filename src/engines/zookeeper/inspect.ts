import type { LeaseInfo } from '../../engine.ts'
import { numberOf } from './driver.ts'
import { decodeName } from './names.ts'
import { leftPath } from './left.ts'
import type { Seat } from './seat.ts'

/** So many resources are asked about at once. */
const AT_ONCE = 32

export async function* inspectFolders(
  seat: Seat,
  resource: string | undefined,
  withinMs: number,
): AsyncIterable<LeaseInfo> {
  const resources =
    resource === undefined
      ? (await seat.line.folders(withinMs)).flatMap((name) => decodeName(name) ?? []).sort()
      : [resource]
  for (let from = 0; from < resources.length; from += AT_ONCE) {
    const some = resources.slice(from, from + AT_ONCE)
    for (const info of await Promise.all(some.map((one) => lease(seat, one, withinMs)))) {
      if (info !== undefined) yield info
    }
  }
}

async function lease({ line, nodes }: Seat, resource: string, withinMs: number): Promise<LeaseInfo | undefined> {
  const [folder] = await line.look([resource], withinMs)
  const { places, left } = folder!
  for (const owner of left) {
    const found = await nodes.read(leftPath(line, resource, owner), withinMs)
    if (found?.note?.token === undefined) continue
    const remainingMs = found.note.ttlMs - found.ageMs
    if (remainingMs > 0) return { resource, owner, token: found.note.token, remainingMs, waiters: places.length }
  }
  const [first] = places
  if (first === undefined) return undefined
  const found = await nodes.read(`${line.folder(resource)}/${first.name}`, withinMs)
  if (found === undefined) return undefined
  const { stat, note, ageMs } = found
  const info = { resource, owner: first.owner, token: numberOf(stat.czxid), waiters: places.length - 1 }
  if (note === undefined) return { ...info, remainingMs: undefined }
  // First in line, but not a holder yet: it has still to prove it, or waits for another resource.
  if (note.heldMs === undefined) return undefined
  return { ...info, remainingMs: Math.max(note.ttlMs - ageMs, 0), heldMs: note.heldMs + ageMs }
}
