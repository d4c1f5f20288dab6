import { leftName } from './names.ts'
import type { SessionScope } from './session-scope.ts'
import type { ResourceFolder, ZookeeperSteps } from './steps.ts'

/** The znode of a lease that was left to run out. */
export function leftPath(steps: ZookeeperSteps, resource: string, owner: string): string {
  return `${steps.folder(resource)}/${leftName(owner)}`
}

/**
 * Returns the owner of a lease that was left to run out, and how long it still blocks. Nobody holds such a lease, so the
 * leader's wall clock may decide when it ends. Removes the znodes of those that are over.
 */
export async function leftLeaseInTheWay(
  { steps, znodes }: SessionScope,
  resources: readonly string[],
  folders: readonly ResourceFolder[],
  withinMs: number,
): Promise<{ readonly owner: string; readonly ms: number } | undefined> {
  for (const [index, { left }] of folders.entries()) {
    for (const owner of left) {
      const path = leftPath(steps, resources[index]!, owner)
      const found = await znodes.read(path, withinMs)
      if (found === undefined) continue
      const ms = (found.data?.ttlMs ?? 0) - found.ageMs
      if (ms > 0) return { owner, ms }
      await znodes.remove(path, withinMs)
    }
  }
  return undefined
}
