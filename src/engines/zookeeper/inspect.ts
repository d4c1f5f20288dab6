import type { InLine, LeaseInfo } from '../../engine.ts'
import { together } from '../shared/together.ts'
import { numberOf } from './client.ts'
import { leftPath } from './left-leases.ts'
import { decodeName, holdersAmong, type QueuePlace } from './names.ts'
import type { SessionScope } from './session-scope.ts'

/** How many resources are asked about at once. */
const AT_ONCE = 32
/** Of at most this many places of a line the age is asked for: each costs a request. */
const MOST_AGES = 100

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
    for (const infos of await Promise.all(some.map((one) => leases(scope, one, withinMs)))) yield* infos
  }
}

async function leases(scope: SessionScope, resource: string, withinMs: number): Promise<LeaseInfo[]> {
  const [folder] = await scope.steps.look([resource], withinMs)
  const { places, left } = folder!
  const some = places.slice(0, holdersAmong(places))
  const [outlived, held] = await Promise.all([
    together(left, AT_ONCE, (owner) => leftLease(scope, resource, owner, withinMs)),
    together(some, AT_ONCE, (place) => heldLease(scope, resource, place, withinMs)),
  ])
  const holders = [...outlived, ...held].filter((info) => info !== undefined)
  if (holders.length === 0) return []
  const waiting = places.filter((_, index) => held[index] === undefined)
  const line = await lineOf(scope, resource, waiting, withinMs)
  return holders.map((info) => ({ ...info, waiters: line.length, ...(line.length > 0 ? { line } : {}) }))
}

async function lineOf(
  { steps, znodes, clock }: SessionScope,
  resource: string,
  waiting: readonly QueuePlace[],
  withinMs: number,
): Promise<InLine[]> {
  const first = waiting.slice(0, MOST_AGES)
  const line = await together(first, AT_ONCE, async ({ name, owner }): Promise<InLine | undefined> => {
    const agoMs = await znodes.madeAgoMs(`${steps.folder(resource)}/${name}`, withinMs)
    return agoMs === undefined ? undefined : { owner, since: Math.round(clock.wallMs() - agoMs) }
  })
  return [...line.filter((one) => one !== undefined), ...waiting.slice(MOST_AGES).map(({ owner }) => ({ owner }))]
}

/** A lease that was left to run out. */
async function leftLease(
  { steps, znodes }: SessionScope,
  resource: string,
  owner: string,
  withinMs: number,
): Promise<LeaseInfo | undefined> {
  const found = await znodes.read(leftPath(steps, resource, owner), withinMs)
  if (found?.data?.token === undefined) return undefined
  const { token, ttlMs } = found.data
  const remainingMs = ttlMs - found.ageMs
  return remainingMs > 0 ? { resource, owner, token, remainingMs } : undefined
}

async function heldLease(
  { steps, znodes }: SessionScope,
  resource: string,
  { name, owner, shared }: QueuePlace,
  withinMs: number,
): Promise<LeaseInfo | undefined> {
  const found = await znodes.read(`${steps.folder(resource)}/${name}`, withinMs)
  if (found === undefined) return undefined
  const { stat, data, ageMs } = found
  const info = { resource, owner, token: numberOf(stat.czxid), ...(shared ? { shared } : {}) }
  if (data === undefined) return { ...info, remainingMs: undefined }
  // One of the first in the queue, but not a holder yet: it still has to prove that, or waits for another resource.
  if (data.heldMs === undefined) return undefined
  return { ...info, remainingMs: Math.max(data.ttlMs - ageMs, 0), heldMs: data.heldMs + ageMs }
}
