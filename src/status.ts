import { optionsOrThrow } from './arguments.ts'
import { shown } from './duration.ts'
import type { Engine, InLine, LeaseInfo } from './engine.ts'
import { resourceName } from './options.ts'
import { ownerParts } from './owner.ts'

/** Who has a resource, and who waits for it. */
export interface LockStatus {
  /** One, or several who share it. None while it is only offered to the first in line. */
  readonly holders: readonly LeaseInfo[]
  /** The owner to whom it is offered, and who has not taken it yet. Only on Redis, for two seconds at most. */
  readonly offeredTo?: string
  /** As in `LeaseInfo`. */
  readonly waiters?: number
  /** As in `LeaseInfo`. */
  readonly line?: readonly InLine[]
}

/** Options of `forceRelease`: which lease is meant. */
export interface ForceReleaseOptions {
  /** The token of the lease that is meant: a later holder keeps its own. 0 for a lock of other software. */
  token: bigint
  /** Its owner. Needed where several share the resource with one token. */
  owner?: string
}

/** The leases of one resource or of all, with what their owners say. */
export async function* inspect(engine: Engine, resource?: string): AsyncIterable<LeaseInfo> {
  for await (const info of engine.inspect(resource)) {
    const { note } = ownerParts(info.owner)
    yield note === undefined ? info : { ...info, note }
  }
}

/** Null where nobody has it. */
export async function statusOf(engine: Engine, name: string): Promise<LockStatus | null> {
  const all = await leasesOn(engine, name)
  if (all[0] === undefined) return null
  const { waiters, line } = all[0]
  const offered = all.find((info) => info.offered === true)
  return {
    holders: all.filter((info) => info.offered !== true),
    ...(offered === undefined ? {} : { offeredTo: offered.owner }),
    ...(waiters === undefined ? {} : { waiters }),
    ...(line === undefined ? {} : { line }),
  }
}

/** Servers have as much time to answer as for a lease of this ttl. */
const PATIENCE_TTL_MS = 30_000

/** Ends the lease with this token, and no other. Returns whether there was one. */
export async function forceRelease(engine: Engine, name: string, options: ForceReleaseOptions): Promise<boolean> {
  const { token, owner } = tokenOrThrow(options, name)
  const meant = (await leasesOn(engine, name)).filter(
    (info) => info.offered !== true && info.token === token && (owner === undefined || info.owner === owner),
  )
  if (meant.length > 1) {
    throw new RangeError(
      `owner: expected one, because ${meant.length} share '${name}' with the token ${token}, got none; end them one by one`,
    )
  }
  const [lease] = meant
  if (lease === undefined) return false
  const { shared = false } = lease
  // Of this owner alone: if it changes hands meanwhile, the new holder keeps it.
  const ref = { resources: [name], owner: lease.owner, token, ttlMs: PATIENCE_TTL_MS, shared }
  return (await engine.release(ref)).ours
}

/** A lease that a person ends is named by its token, so that a later holder keeps its own. */
function tokenOrThrow(options: ForceReleaseOptions, name: string): ForceReleaseOptions {
  resourceName(name)
  const how = `locks.status(${shown(name)}) has it, in the holder that you mean`
  if (options === undefined)
    throw new TypeError(`options: expected { token } of the lease to end, got undefined; ${how}`)
  optionsOrThrow(options, ['token', 'owner'])
  const { token } = options as { token: unknown }
  if (typeof token === 'bigint') return options
  const text = String(token)
  const next = /^\d+$/.test(text) ? `write { token: BigInt('${text}') }` : how
  throw new TypeError(`token: expected a bigint, as status() and inspect() give it, got ${shown(token)}; ${next}`)
}

async function leasesOn(engine: Engine, name: string): Promise<LeaseInfo[]> {
  resourceName(name)
  const all: LeaseInfo[] = []
  for await (const info of inspect(engine, name)) all.push(info)
  return all
}
