import { quorumOf } from '../votes.ts'
import { unknown, type Facts } from './facts.ts'
import type { CheckPlan, Diagnosis, Patient } from './patient.ts'

export interface Seen {
  readonly patient: Patient
  readonly facts: Facts
}

/** Of a quorum: are there enough members, and is each of them a vote of its own? */
export function checkMembers(plan: CheckPlan, seen: readonly Seen[]): readonly Diagnosis[] {
  const size = plan.clients.length
  if (size <= 1) return []
  return [
    quorum(size, new Set(seen.map(({ patient }) => patient.member)).size),
    count(size),
    ...independence(seen),
    machines(plan),
  ]
}

function quorum(size: number, answering: number): Diagnosis {
  const id = 'redis/quorum'
  const needed = quorumOf(size)
  const found = `${answering} of ${size} nodes answer; ${needed} are needed`
  if (answering < needed) {
    const meaning = 'No lease can be granted or renewed.'
    return { id, severity: 'critical', found, meaning, remedy: 'Bring the other nodes back.' }
  }
  if (answering === needed && answering < size) {
    const meaning = 'Locks work, but not if another node fails.'
    return { id, severity: 'warning', found, meaning, remedy: 'Bring the other nodes back.' }
  }
  return { id, severity: 'ok', found, meaning: `${answering - needed} more may fail.` }
}

function count(size: number): Diagnosis {
  const id = 'redis/node-count'
  const found = `${size} nodes`
  const bears = Math.ceil(size / 2) - 1
  if (size === 2) {
    const meaning = 'Both are needed for every lease: worse than one server, which fails half as often.'
    return { id, severity: 'warning', found, meaning, remedy: 'Use one, or three.' }
  }
  if (size % 2 === 0) {
    const meaning = `${bears} of them may fail, as with ${size - 1}; the one more is one more that can fail or split a vote.`
    return { id, severity: 'note', found, meaning, remedy: `Use ${size - 1}, or ${size + 1}.` }
  }
  return { id, severity: 'ok', found, meaning: `${bears} of them may fail.` }
}

function independence(seen: readonly Seen[]): readonly Diagnosis[] {
  const id = 'redis/independence'
  const silent = seen.filter(({ facts }) => facts.info('run_id') === undefined)
  const pairs = seen.flatMap((a, index) => seen.slice(index + 1).map((b) => [a, b] as const))
  const found = pairs
    .filter(([a, b]) => a.patient.member !== b.patient.member)
    .flatMap(([a, b]) => dependence(a, b) ?? [])
  if (silent.length > 0) {
    const what = `whether ${silent.map(({ patient }) => patient.label).join(', ')} are servers of their own`
    found.push(unknown(id, what, silent[0]!.facts.infoRefused, '+info'))
  }
  if (found.length > 0) return found
  const meaning = 'Each of them is a vote of its own.'
  return [{ id, severity: 'ok', found: `${seen.length} different servers, none a replica of another`, meaning }]
}

function dependence(a: Seen, b: Seen): Diagnosis | undefined {
  const id = 'redis/independence'
  const same = (name: string): boolean => a.facts.info(name) !== undefined && a.facts.info(name) === b.facts.info(name)
  if (same('run_id')) {
    return {
      id,
      severity: 'critical',
      found: `${a.patient.label} and ${b.patient.label} are one server (run_id ${a.facts.info('run_id')})`,
      meaning:
        'It has two votes: when it fails or forgets, both are gone, so the quorum bears less than it seems. Of three ' +
        'nodes, this one server then decides alone.',
      remedy: 'Give every node a server of its own.',
    }
  }
  // A replica has its master's replication id. Two masters never share one.
  const related = same('master_replid') && [a, b].some(({ facts }) => facts.info('role') === 'slave')
  if (!related) return undefined
  const [replica, other] = b.facts.info('role') === 'slave' ? [b, a] : [a, b]
  const relation = other.facts.info('role') === 'slave' ? 'are replicas of the same master' : undefined
  return {
    id,
    severity: 'critical',
    found:
      relation === undefined
        ? `${replica.patient.label} is a replica of ${other.patient.label}`
        : `${replica.patient.label} and ${other.patient.label} ${relation}`,
    meaning: 'A replica only repeats its master: it is no vote of its own, and refuses writes.',
    remedy: `Make it a master (REPLICAOF NO ONE on ${replica.patient.label}), and keep sentinels away from it; or leave it out.`,
  }
}

function machines(plan: CheckPlan): Diagnosis {
  const id = 'redis/machines'
  const hosts = plan.clients
    .filter(({ cluster }) => !cluster)
    .map(({ label }) => /^(.+):\d+$/.exec(label)?.[1] ?? label)
  const shared = [...new Set(hosts)].filter((host) => hosts.filter((other) => other === host).length > 1)
  if (shared.length === 0) {
    const meaning = 'As far as names tell, no machine takes several nodes with it.'
    return { id, severity: 'ok', found: 'every node has a host of its own', meaning }
  }
  const most = Math.max(...shared.map((host) => hosts.filter((other) => other === host).length))
  return {
    id,
    severity: 'note',
    found: `${most} nodes are on the same host (${shared.join(', ')})`,
    meaning: 'They fail, restart and lose their clock together: for those, it is as if there were one node.',
    remedy: 'Run each node on a machine, and best in a zone, of its own.',
  }
}
