import type { InLine, LeaseRef } from '../../engine.ts'
import type { KeySet } from './keys.ts'
import { OFFERED } from './line-lua.ts'
import { piece, type Piece } from './pieces.ts'
import { REPEATED, SHARED } from './readers-lua.ts'
import { ACQUIRE, CONFIRM, EXTEND, FIRST, HAND_OVER, INSPECT, RELEASE, type Script } from './scripts.ts'
import type { NodeAnswer } from './votes.ts'

/** One atomic step on a node: a script with its keys and arguments, and what the server's reply means. The same for all nodes. */
export interface Step<T> {
  /** Of a vote: where every node votes at all times. Otherwise each node has its own. */
  readonly script: Script
  /** Undefined if it is none. `ttlMs`: of the lease that it is for. */
  readonly vote?: { readonly ttlMs: number }
  readonly keys: Piece
  readonly args: Piece
  /** The first letter of its name, by which several steps of one call are told apart. Undefined: it has a call of its own. */
  readonly letter?: 'a' | 'c' | 'r' | 'h'
  /** Throws when the reply is none of those that the script gives. */
  read(reply: unknown, script: Script): T
  /** It changes nothing, and what it finds is of use to its caller alone: closing does not wait for it. */
  readonly isLook?: boolean
  /** Whether the step that gave this answer wrote something that replicas can acknowledge. Undefined: it need not be asked. */
  wrote?(answer: T): boolean
  /** What to ask instead where this user may not use one of the keys. */
  readonly otherwise?: (() => Step<T>) | undefined
}

export type NodeGrant = Extract<NodeAnswer, { kind: 'granted' }> & {
  /** Its owner had the lease there before: the step was sent twice, or another client leads to the same server. */
  readonly isRepeated?: boolean
}

/** A node that refuses says who is in the way. */
export interface NodeRefusal {
  readonly kind: 'refused'
  readonly fence: number
  readonly holder: string
  /** Nobody holds it: it is offered to this owner. */
  readonly offered: boolean
  /** The holder is one of the readers, of which others may be in the way elsewhere. */
  readonly shared: boolean
  /** Undefined for a lock without an end. */
  readonly remainingMs: number | undefined
}

/** Few differ. */
const heads = new Map<string, Piece>()

/** What a step begins with among others: its letter, how many keys it has, and how many arguments. */
export function headOf({ letter, keys, args }: Step<unknown>): Piece {
  const name = `${letter} ${keys.words.length} ${args.words.length}`
  let head = heads.get(name)
  if (head === undefined) {
    head = piece(...name.split(' '))
    heads.set(name, head)
  }
  return head
}

/** `fenceTtlMs`, here and below: the counter's own time to live. */
export function acquireStep(
  keys: KeySet,
  owner: string,
  ttlMs: number,
  proposal: number,
  fenceTtlMs: number,
  isFirst = false,
): Step<NodeGrant | NodeRefusal> {
  const terms = [owner, String(ttlMs), String(proposal), String(fenceTtlMs)]
  const args = piece(...terms, ...(isFirst ? [FIRST] : []))
  return { script: ACQUIRE, vote: { ttlMs }, keys: keys.piece, args, letter: 'a', read: grantOrRefusal, wrote: isGrant }
}

/** `isVote`: a node that sits out does not take part. Those that do have forgotten nothing, so their counters are enough. */
export function handOverStep(
  keys: KeySet,
  { owner, token }: Pick<LeaseRef, 'owner' | 'token'>,
  next: { readonly owner: string; readonly ttlMs: number },
  proposal: number,
  fenceTtlMs: number,
  isVote: boolean,
): Step<NodeGrant | NodeRefusal> {
  const terms = [String(next.ttlMs), String(proposal), 'over', String(fenceTtlMs), isVote ? '0' : String(token)]
  const args = piece(owner, next.owner, ...terms)
  return {
    script: HAND_OVER,
    ...(isVote ? { vote: { ttlMs: next.ttlMs } } : {}),
    keys: keys.piece,
    args,
    letter: 'h',
    read: grantOrRefusal,
    wrote: isGrant,
  }
}

export function confirmStep(keys: KeySet, owner: string, token: number, fenceTtlMs: number): Step<NodeAnswer> {
  const args = piece(owner, String(token), String(fenceTtlMs))
  return {
    script: CONFIRM,
    keys: keys.piece,
    args,
    letter: 'c',
    read(reply) {
      return readConfirm(reply, token)
    },
    wrote: isConfirmed,
  }
}

export function readConfirm(reply: unknown, token: number): NodeAnswer {
  const [kind, fence] = fields(reply, CONFIRM)
  if (kind === 1) return { kind: 'confirmed', token }
  return kind === 2 ? { kind: 'higher', fence: numeric(fence, CONFIRM) } : { kind: 'out' }
}

export function isConfirmed({ kind }: NodeAnswer): boolean {
  return kind === 'confirmed'
}

/**
 * For each lease: is it still its owner's here? The counter of a lease whose token is below `oldUs` is written again. `script` and
 * `nameOf`: of readers, which the scripts know by other names.
 */
export function extendStep(
  leases: readonly LeaseRef[],
  keys: readonly string[],
  fenceTtlMs: number,
  oldUs: number,
  script = EXTEND,
  nameOf = (owner: string): string => owner,
): Step<readonly boolean[]> {
  const args = [String(fenceTtlMs), String(oldUs)]
  for (const { resources, owner, ttlMs, token } of leases) {
    args.push(String(resources.length), nameOf(owner), String(ttlMs), String(token))
  }
  return {
    script,
    keys: piece(...keys),
    args: piece(...args),
    read(reply) {
      if (!Array.isArray(reply) || reply.length !== leases.length) throw nonsense(reply, script)
      return reply.map((ours) => Number(ours) === 1)
    },
    wrote: (answers) => answers.includes(true),
  }
}

export interface NodeRelease {
  readonly ours: boolean
  /** How many clients got the message of this release. */
  readonly listeners: number
}

/** `publish`: the command that wakes the waiters, or nothing. `passOn`: to the first in line. */
export function releaseStep(
  keys: KeySet,
  owner: string,
  token: bigint,
  publish: 'publish' | 'spublish' | '',
  fenceTtlMs: number,
  passOn: boolean,
): Step<NodeRelease> {
  const args = piece(owner, String(token), String(fenceTtlMs), publish, ...keys.channels)
  const on = passOn ? keys.withLines : keys.piece
  const otherwise = passOn ? () => releaseStep(keys, owner, token, publish, fenceTtlMs, false) : undefined
  return { script: RELEASE, keys: on, args, letter: 'r', read: readRelease, otherwise }
}

export function readRelease(reply: unknown): NodeRelease {
  const listeners = numeric(reply, RELEASE)
  return listeners >= 0 ? { ours: true, listeners } : { ours: false, listeners: -1 - listeners }
}

/** One resource, as a node has it. */
export interface NodeLease {
  /** Empty when nobody holds it. */
  readonly owner: string
  /** To whom it is offered, who has not taken it yet. */
  readonly heir: string | undefined
  readonly remainingMs: number | undefined
  readonly fence: number
  /** Those in line, the first one first. */
  readonly line: readonly InLine[]
  /** Those that share it, if it is shared; then `owner` is one of them. */
  readonly readers: readonly NodeReader[]
  /** The node's clock. */
  readonly nowUs: number
}

export interface NodeReader {
  readonly owner: string
  readonly remainingMs: number | undefined
}

export function inspectStep({ piece: pairs, withReaders, channels }: KeySet): Step<readonly NodeLease[]> {
  const step = {
    script: INSPECT,
    keys: withReaders,
    args: piece(String(channels.length)),
    isLook: true,
    read: (reply: unknown) => readLeases(reply, channels.length),
  }
  return { ...step, otherwise: () => ({ ...step, keys: pairs }) }
}

function readLeases(reply: unknown, count: number): readonly NodeLease[] {
  if (!Array.isArray(reply) || reply.length !== count) throw nonsense(reply, INSPECT)
  return reply.map((row: unknown) => {
    const [name, left, fence, line, readers, now] = fields(row, INSPECT)
    const remainingMs = timeLeft(left, INSPECT)
    const isOffer = String(name).startsWith(OFFERED)
    const isShared = String(name).startsWith(SHARED)
    const owner = isOffer ? '' : holderName(name)
    const all = isShared ? readReaders(readers) : []
    // A user who may not use the keys of readers sees one of them.
    const alone = isShared && all.length === 0 ? [{ owner, remainingMs }] : []
    return {
      owner,
      heir: isOffer ? holderName(name) : undefined,
      remainingMs,
      fence: numeric(fence, INSPECT),
      line: readLine(line),
      readers: [...all, ...alone],
      nowUs: numeric(now, INSPECT),
    }
  })
}

function readLine(reply: unknown): InLine[] {
  return pairsOf(reply).map(([name, ticket]) => ({
    owner: holderName(name),
    since: Math.floor(numeric(ticket, INSPECT) / 1000),
  }))
}

function readReaders(reply: unknown): NodeReader[] {
  return pairsOf(reply).map(([name, left]) => ({ owner: holderName(name), remainingMs: timeLeft(left, INSPECT) }))
}

function pairsOf(reply: unknown): (readonly [unknown, unknown])[] {
  const words: readonly unknown[] = Array.isArray(reply) ? reply : []
  return Array.from({ length: words.length / 2 }, (_, at) => [words[2 * at], words[2 * at + 1]])
}

export function isGrant({ kind }: NodeGrant | NodeRefusal): boolean {
  return kind === 'granted'
}

export function grantOrRefusal(reply: unknown, script: Script): NodeGrant | NodeRefusal {
  if (!Array.isArray(reply)) {
    const fence = numeric(reply, script)
    if (fence <= 0) throw nonsense(reply, script)
    return { kind: 'granted', fence, ...(String(reply).startsWith(REPEATED) ? { isRepeated: true } : {}) }
  }
  const [fence, holder, left] = reply as unknown[]
  return {
    kind: 'refused',
    fence: numeric(fence, script),
    holder: holderName(holder),
    offered: String(holder).startsWith(OFFERED),
    shared: String(holder).startsWith(SHARED),
    remainingMs: timeLeft(left, script),
  }
}

/** Who has a lock, or has it offered, or shares it. */
export function holderName(value: unknown): string {
  const text = String(value)
  const name = text.startsWith(OFFERED) ? text.slice(OFFERED.length) : text
  return name.startsWith(SHARED) ? name.slice(SHARED.length) : name
}

export function timeLeft(value: unknown, script: Script): number | undefined {
  const ms = numeric(value, script)
  return ms < 0 ? undefined : ms
}

export function fields(reply: unknown, script: Script): readonly unknown[] {
  if (!Array.isArray(reply) || reply.length === 0) throw nonsense(reply, script)
  return reply
}

export function numeric(value: unknown, script: Script): number {
  const number = typeof value === 'string' && /^[+-]?(0|[1-9]\d*)$/.test(value) ? Number(value) : value
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number
  throw nonsense(value, script)
}

export function nonsense(reply: unknown, script: Script): Error {
  const text = JSON.stringify(reply) ?? String(reply)
  return new Error(`the server answered the ${script.name} script with nonsense: ${text.slice(0, 120)}`)
}
