import type { KeySet } from './keys.ts'
import { piece } from './pieces.ts'
import { readerName } from './readers-steps.ts'
import { ACQUIRE, script, type Script } from './scripts.ts'
import {
  acquireStep,
  fields,
  holderName,
  nonsense,
  numeric,
  timeLeft,
  type NodeGrant,
  type NodeRefusal,
  type Step,
} from './steps.ts'

/** What a node says to someone who comes to its line. */
export type LineAnswer =
  | { readonly kind: 'offered' }
  /** `remainingMs`: after this time the lock may be free. Undefined for a lock without an end. */
  | { readonly kind: 'behind'; readonly holder: string; readonly remainingMs: number | undefined }
  /** The ticket does not fit the node's clock; this one would. */
  | { readonly kind: 'clock'; readonly ticket: number }

export interface LinePlace {
  readonly owner: string
  readonly ticket: number
  readonly waitedUs: number
  /** The owner of a lost claim, whose place it takes over. */
  readonly old: string | undefined
}

/** The steps are part of the acquire script, because a node that sits out may do none of them. */
const CLAIM = script('claim', ACQUIRE.text)
const ENQUEUE = script('enqueue', ACQUIRE.text)

/** As an acquire, but an offer to the owner counts as a free lock, and the owner leaves the line. */
export function claimStep(
  keys: KeySet,
  owner: string,
  ttlMs: number,
  proposal: number,
  fenceTtlMs: number,
): Step<NodeGrant | NodeRefusal> {
  const step = acquireStep(keys, owner, ttlMs, proposal, fenceTtlMs)
  const args = piece(...step.args.words, 'claim')
  return { ...step, script: CLAIM, keys: keys.withLines, args, letter: 'a' }
}

/** `publish`: the command that tells the one that a lock is offered to. `ttlMs`: of the lease that it waits for. */
export function enqueueStep(
  { withLines, withReaders, channels, shared }: KeySet,
  { owner, ticket, waitedUs, old }: LinePlace,
  ttlMs: number,
  publish: 'publish' | 'spublish',
): Step<LineAnswer> {
  const name = shared ? readerName(owner) : owner
  const before = old === undefined ? '' : shared ? readerName(old) : old
  const args = piece(name, String(ticket), String(waitedUs), before, 'enqueue', publish, ...channels)
  const keys = shared ? withReaders : withLines
  return { script: ENQUEUE, vote: { ttlMs }, keys, args, letter: 'a', read: readAnswer }
}

function readAnswer(reply: unknown, script: Script): LineAnswer {
  const [kind, detail, left] = fields(reply, script)
  switch (kind) {
    case 'offered':
      return { kind: 'offered' }
    case 'behind':
      return { kind: 'behind', holder: holderName(detail), remainingMs: timeLeft(left, script) }
    case 'clock':
      return { kind: 'clock', ticket: numeric(detail, script) }
    default:
      throw nonsense(reply, script)
  }
}
