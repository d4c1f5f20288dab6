import type { Folder, Line } from './line.ts'
import { leftName } from './names.ts'
import type { Seat } from './seat.ts'

/** The node of a lease that was left to run out. */
export function leftPath(line: Line, resource: string, owner: string): string {
  return `${line.folder(resource)}/${leftName(owner)}`
}

/**
 * A lease that was left to run out and has not yet: whose, and for how long. Nobody holds it, so that its end may be told
 * by the leader's wall clock; what is over is removed.
 */
export async function leftInTheWay(
  { line, nodes }: Seat,
  resources: readonly string[],
  folders: readonly Folder[],
  withinMs: number,
): Promise<{ readonly owner: string; readonly ms: number } | undefined> {
  for (const [index, { left }] of folders.entries()) {
    for (const owner of left) {
      const path = leftPath(line, resources[index]!, owner)
      const found = await nodes.read(path, withinMs)
      if (found === undefined) continue
      const ms = (found.note?.ttlMs ?? 0) - found.ageMs
      if (ms > 0) return { owner, ms }
      await nodes.remove(path, withinMs)
    }
  }
  return undefined
}
