import type { LeaseRef } from '../../engine.ts'
import type { KeySet } from './keys.ts'
import { piece } from './pieces.ts'
import { SHARED } from './readers-lua.ts'
import { ACQUIRE, READER } from './scripts.ts'
import {
  extendStep,
  grantOrRefusal,
  isConfirmed,
  isGrant,
  readConfirm,
  readRelease,
  type NodeGrant,
  type NodeRefusal,
  type NodeRelease,
  type Step,
} from './steps.ts'
import type { NodeAnswer } from './votes.ts'

/** As the scripts know a reader. */
export function readerName(owner: string): string {
  return SHARED + owner
}

/** An acquire, or a claim, of a reader: it knows by the line which of the two it is. `publish`: the command that tells the next ones. */
export function shareStep(
  { withReaders, channels }: KeySet,
  owner: string,
  ttlMs: number,
  proposal: number,
  fenceTtlMs: number,
  publish: 'publish' | 'spublish',
): Step<NodeGrant | NodeRefusal> {
  const numbers = [ttlMs, proposal, fenceTtlMs].map(String)
  const args = piece(readerName(owner), ...numbers, 'share', publish, ...channels)
  return {
    script: ACQUIRE,
    vote: { ttlMs },
    keys: withReaders,
    args,
    letter: 'a',
    read: grantOrRefusal,
    wrote: isGrant,
  }
}

export function confirmReaderStep(keys: KeySet, owner: string, token: number, fenceTtlMs: number): Step<NodeAnswer> {
  return {
    script: READER.confirm,
    keys: keys.withReaders,
    args: piece(readerName(owner), String(token), String(fenceTtlMs)),
    read: (reply) => readConfirm(reply, token),
    wrote: isConfirmed,
  }
}

/** As `extendStep`, for readers. */
export function extendReadersStep(
  leases: readonly LeaseRef[],
  keys: readonly KeySet[],
  fenceTtlMs: number,
  oldUs: number,
): Step<readonly boolean[]> {
  const words = keys.flatMap(({ withReaders }) => withReaders.words)
  return extendStep(leases, words, fenceTtlMs, oldUs, READER.extend, readerName)
}

/** As `releaseStep`, for a reader: what it shared with others stays theirs. */
export function releaseReaderStep(
  { withReaders, channels }: KeySet,
  owner: string,
  token: bigint,
  publish: 'publish' | 'spublish' | '',
  fenceTtlMs: number,
  passOn: boolean,
): Step<NodeRelease> {
  const pass = passOn ? 'pass' : ''
  const args = piece(readerName(owner), String(token), String(fenceTtlMs), publish, pass, ...channels)
  return { script: READER.release, keys: withReaders, args, read: readRelease }
}
