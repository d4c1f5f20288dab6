import { span } from '../duration.ts'
import type { LeaseInfo, Locks } from '../index.ts'
import { whoIs } from '../owner.ts'

/** All leases, or those on one resource, in the order of their names, tokens and owners. */
export async function inspect(locks: Locks, resource: string | undefined): Promise<LeaseInfo[]> {
  const leases: LeaseInfo[] = []
  for await (const lease of locks.inspect(resource)) leases.push(lease)
  return leases.sort(
    (some, other) =>
      order(some.resource, other.resource) || order(some.token, other.token) || order(some.owner, other.owner),
  )
}

function order<T extends string | bigint>(some: T, other: T): number {
  if (some === other) return 0
  return some < other ? -1 : 1
}

/** The leases on the permits of a pool, in the order of their numbers. */
export async function permitsOf(locks: Locks, pool: string): Promise<LeaseInfo[]> {
  const number = (resource: string): string => resource.slice(pool.length + 1)
  const isPermit = (resource: string): boolean =>
    resource.startsWith(`${pool}#`) && /^(0|[1-9]\d{0,3})$/.test(number(resource))
  const leases = (await inspect(locks, undefined)).filter(({ resource }) => isPermit(resource))
  return leases.sort((some, other) => Number(number(some.resource)) - Number(number(other.resource)))
}

/** The lease on one resource, if somebody has it; the first one where several share it. */
export async function leaseOn(locks: Locks, resource: string): Promise<LeaseInfo | undefined> {
  return (await inspect(locks, resource))[0]
}

/** A lease in a sentence. */
export function heldBy(lease: LeaseInfo): string {
  if (lease.offered === true)
    return `'${lease.resource}' is offered to ${whoIs(lease.owner)}, which has not taken it yet`
  const how = lease.shared === true ? 'shared' : 'held'
  const token = lease.token === 0n ? 'of other software' : `token ${lease.token}`
  return `'${lease.resource}' is ${how} by ${whoIs(lease.owner)} (${timesOf(lease)}, ${token})`
}

/** The same of a lease that this command is itself inside of; undefined where another one holds it. */
export function heldAround(owner: string | undefined, names: readonly string[]): string | undefined {
  const { RINGFENCE_OWNER: around, RINGFENCE_RESOURCE: held = '' } = process.env
  if (owner === undefined || owner !== around) return undefined
  const name = held.split('\n').find((one) => names.includes(one)) ?? names[0]
  return `'${name}' is held by the very ringfence that this one is inside of, which waits for it; leave out the inner one, or give it another name`
}

/** 'for 1.9 s, 27 s left unless renewed'. */
function timesOf({ heldMs, remainingMs }: LeaseInfo): string {
  const left = remainingMs === undefined ? 'without an end' : `${span(remainingMs)} left unless renewed`
  return heldMs === undefined ? left : `for ${span(heldMs)}, ${left}`
}
