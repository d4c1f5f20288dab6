import type { LeaseInfo } from '../../engine.ts'
import { numberOf } from './client.ts'
import { leftPath } from './left-leases.ts'
import { decodeName } from './names.ts'
import type { SessionScope } from './session-scope.ts'

/** How many resources are asked about at once. */
const AT_ONCE = 32

export async function* inspectFolders(
  scope: SessionScope,
  resource: string | undefined,
  withinMs: number,
): AsyncIterable<LeaseInfo> {
  const resources =
    resource === undefined
      ? (await scope.steps.folders(withinMs)).flatMap((name) => decodeName(name) ?? []).sort()
      : [resource]
  for (let from = 0; from < resources.length; from += AT_ONCE) {
    const some = resources.slice(from, from + AT_ONCE)
    for (const info of await Promise.all(some.map((one) => lease(scope, one, withinMs)))) {
      if (info !== undefined) yield info
    }
  }
}

async function lease(
  { steps, znodes }: SessionScope,
  resource: string,
  withinMs: number,
): Promise<LeaseInfo | undefined> {
  const [folder] = await steps.look([resource], withinMs)
  const { places, left } = folder!
  for (const owner of left) {
    const found = await znodes.read(leftPath(steps, resource, owner), withinMs)
    if (found?.data?.token === undefined) continue
    const remainingMs = found.data.ttlMs - found.ageMs
    if (remainingMs > 0) return { resource, owner, token: found.data.token, remainingMs, waiters: places.length }
  }
  const [first] = places
  if (first === undefined) return undefined
  const found = await znodes.read(`${steps.folder(resource)}/${first.name}`, withinMs)
  if (found === undefined) return undefined
  const { stat, data, ageMs } = found
  const info = { resource, owner: first.owner, token: numberOf(stat.czxid), waiters: places.length - 1 }
  if (data === undefined) return { ...info, remainingMs: undefined }
  // The first in the queue, but not a holder yet: it still has to prove that, or waits for another resource.
  if (data.heldMs === undefined) return undefined
  return { ...info, remainingMs: Math.max(data.ttlMs - ageMs, 0), heldMs: data.heldMs + ageMs }
}
