import type { Grant, Refusal } from '../../engine.ts'
import type { Election } from './election.ts'
import type { NodeRefusal } from './steps.ts'
import { quorumOf } from './votes.ts'

/** The grant of an election that was won. The votes are for observers alone. */
export function grantOf(token: number, election: Election, isObserved: boolean): Grant {
  const grant = { kind: 'granted', token: BigInt(token) } as const
  return isObserved ? { ...grant, votes: () => election.votes() } : grant
}

/** The refusal of an election that was lost although enough nodes answered. */
export function refusalOf(election: Election, size: number, shared = false): Refusal {
  const { refusals } = election
  const quorum = quorumOf(size)
  const held = heldBy(election, quorum) ?? refusals[0]
  const holder = held?.holder
  const same = refusals.filter((refusal) => held !== undefined && isSame(refusal, held))
  const votes = same.length
  // Where a node has it as held, it is being taken.
  const offered = votes > 0 && same.every((refusal) => refusal.offered)
  // As far as is known: the others have not answered, or were not even asked.
  const mayHoldQuorum = election.granted().length === 0 && votes + size - refusals.length >= quorum
  // Readers do not keep each other out.
  const writerWaits = shared && held?.shared === true
  const named = {
    ...(holder === undefined ? {} : { holder }),
    ...(offered ? { offered } : {}),
    ...(writerWaits ? { writerWaits } : {}),
    votes: () => election.votes(),
  }
  if (votes < quorum && !mayHoldQuorum) return { kind: 'refused', reason: 'split', ...named }
  const remainingMs = freeInMs(election, quorum)
  return { kind: 'refused', reason: 'held', ...named, ...(remainingMs === undefined ? {} : { remainingMs }) }
}

/** The refusal of a node whose holder a quorum of nodes names. Each may name another one of several readers. */
export function heldBy({ refusals }: Election, quorum: number): NodeRefusal | undefined {
  return refusals.find((one) => refusals.filter((other) => isSame(one, other)).length >= quorum)
}

function isSame(one: NodeRefusal, other: NodeRefusal): boolean {
  return one.holder === other.holder || (one.shared && other.shared)
}

/** When enough locks have run out that a quorum is free. */
function freeInMs(election: Election, quorum: number): number | undefined {
  const times = [
    ...election.granted().map(() => 0),
    ...election.refusals.map(({ remainingMs }) => remainingMs ?? Infinity),
  ]
  const freeMs = times.sort((a, b) => a - b)[quorum - 1] ?? times.at(-1)
  return freeMs === undefined || freeMs === Infinity ? undefined : freeMs
}
