import { objectOrThrow, optionsOrThrow } from './arguments.ts'
import { shown } from './duration.ts'
import type { AdoptedGrant, Engine, LeaseRef, LeaseRequest, Refusal } from './engine.ts'
import { LeaseLostError, LOSS_REASONS, type LossReason } from './errors.ts'
import { ttlOf } from './lease.ts'
import {
  LEASE_OPTIONS,
  resourceNames,
  waitTerms,
  type LeaseOptions,
  type LeaseTerms,
  type WaitTerms,
} from './options.ts'
import { ownerParts, whoIs } from './owner.ts'

/** Options of `adopt`. Without a `ttl` or a `note`, those of the lease stay. */
export type AdoptOptions = LeaseOptions

/** Reads what came from another process, and the options. Throws what is wrong with them, and where the lease was over already. */
export function adoption(
  json: unknown,
  options: AdoptOptions,
  defaults: WaitTerms,
  engine: Engine,
): readonly [LeaseRef, LeaseTerms] {
  const lease = readLease(json, engine)
  const { note } = ownerParts(lease.owner)
  optionsOrThrow(options, LEASE_OPTIONS)
  const terms = waitTerms(
    options,
    { ...defaults, ttlMs: lease.ttlMs, shared: false, note: note ?? defaults.note },
    engine,
  )
  assertMovable(engine, lease)
  return [lease, terms]
}

/** Throws where the engine cannot move leases, and for a shared one. */
export function assertMovable(engine: Engine, { shared = false }: Pick<LeaseRef, 'shared'>): void {
  if (shared) {
    throw new RangeError(`lease.shared: expected false, got true; ${SHARED_STAYS}`)
  }
  if (engine.handOver !== undefined || engine.adopt !== undefined) return
  throw new RangeError(
    `engine: expected one whose leases can move to another process, got ${engine.name}; release the lease here and acquire it there`,
  )
}

/** In one step on the servers: the lease becomes that of the next request. */
export async function move(engine: Engine, lease: LeaseRef, next: LeaseRequest): Promise<AdoptedGrant | Refusal> {
  return engine.adopt === undefined ? engine.handOver!(lease, next) : engine.adopt(lease, next)
}

/** Why a lease could not be adopted, as far as the servers say who has it now. */
export async function whyNotMoved(
  engine: Engine,
  { resources, owner: ofTicket }: LeaseRef,
  { reason }: Refusal,
): Promise<LeaseLostError | RangeError> {
  if (reason === 'split') return new LeaseLostError(resources, 'gone', undefined, NOBODY_GOT_IT)
  const owners: string[] = []
  try {
    for (const resource of resources) {
      for await (const { owner, offered, shared = false } of engine.inspect(resource)) {
        if (shared && owner === ofTicket) return changedTicket(resource)
        if (offered !== true) owners.push(owner)
      }
    }
  } catch (cause) {
    return new LeaseLostError(resources, 'gone', cause)
  }
  const [owner] = owners
  return owner === undefined
    ? new LeaseLostError(resources, 'expired', undefined, nobodyHasIt(engine))
    : new LeaseLostError(resources, 'gone', undefined, hasIt(owner))
}

const NOBODY_GOT_IT =
  'several processes tried to adopt it at once, and none of them got it; a ticket goes to one process: acquire the resource anew'

/** Its owner is unique, so a lease of another server is not found rather than mistaken for one of this. */
function nobodyHasIt({ identity }: Engine): string {
  return (
    'nobody has it now: its time was up before it was adopted, it was adopted and released already, or the ticket is of another server ' +
    `or database whose engine is '${identity}' as well; acquire the resource anew`
  )
}

/** No lease of ours is shared and says that it is not. */
function changedTicket(resource: string): RangeError {
  return new RangeError(
    `lease.shared: expected true, because its owner shares '${resource}' on the servers, got false; the ticket was changed on its way: ` +
      SHARED_STAYS,
  )
}

const SHARED_STAYS =
  'a shared lease need not move, because the other process can take one of its own before this one is released'

function hasIt(owner: string): string {
  return (
    `${whoIs(owner)} has it now, which adopted it before this process or got the resource after its time; a ticket is good for one adoption, so ` +
    'acquire the resource anew'
  )
}

function readLease(json: unknown, engine: Engine): LeaseRef & { readonly shared: boolean } {
  if (typeof json === 'string')
    throw new TypeError(
      `lease: expected the object that handOff() or toJSON() gave, got ${shown(json)}; JSON.parse it first`,
    )
  objectOrThrow(json, 'lease')
  const lease = json as Readonly<Record<string, unknown>>
  const resources = resourceNames(field(lease, 'resources', 'an array of names', isArray))
  const owner = field(lease, 'owner', 'the owner as a string', isText)
  const token = field(lease, 'token', 'decimal digits as a string', isNumber)
  const identity = field(lease, 'engine', 'the identity of an engine as a string', isText)
  const shared = field(lease, 'shared', 'true or false', isBoolean)
  const held = field(lease, 'held', 'true or false', isBoolean)
  if (identity !== engine.identity) {
    throw new RangeError(
      `lease.engine: expected '${engine.identity}', which is the engine of these locks, got ${shown(identity)}; adopt it with locks ` +
        'of that engine',
    )
  }
  const ttlMs = ttlOf(field(lease, 'ttlMs', 'a number of milliseconds', isCount), engine.limits)
  const over = reasonOf(lease['over'])
  if (!held) throw new LeaseLostError(resources, over ?? 'expired')
  if (over !== undefined) {
    throw new TypeError(`lease.over: expected none, because lease.held is true, got '${over}'; ${ITS_TICKET}`)
  }
  return { resources, owner, token: BigInt(token), ttlMs, shared }
}

const ITS_TICKET = 'give adopt what handOff() or toJSON() gave, unchanged'

function reasonOf(over: unknown): LossReason | undefined {
  const reason = LOSS_REASONS.find((known) => known === over)
  if (reason !== undefined || over === undefined) return reason
  throw new TypeError(`lease.over: expected ${LOSS_REASONS.join(', ')} or nothing, got ${shown(over)}; ${ITS_TICKET}`)
}

function field<T>(
  lease: Readonly<Record<string, unknown>>,
  name: string,
  expected: string,
  fits: (value: unknown) => value is T,
): T {
  const value = lease[name]
  if (fits(value)) return value
  throw new TypeError(
    `lease.${name}: expected ${expected}, as lease.handOff() and lease.toJSON() give it, got ${shown(value)}`,
  )
}

function isArray(value: unknown): value is readonly string[] {
  return Array.isArray(value)
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function isNumber(value: unknown): value is string {
  return typeof value === 'string' && /^\d{1,40}$/.test(value)
}

function isBoolean(value: unknown): value is boolean {
  return typeof value === 'boolean'
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value > 0
}
