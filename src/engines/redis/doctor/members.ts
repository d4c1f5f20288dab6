import type { Finding } from '../../../engine.ts'
import { findings } from '../../shared/findings.ts'
import { quorumOf } from '../votes.ts'
import { unknown, type ServerFacts } from './facts.ts'
import type { CheckedServer, RedisCheckPlan } from './server.ts'
import { checkVoters } from './voters.ts'

export interface ExaminedServer {
  readonly server: CheckedServer
  readonly facts: ServerFacts
}

const report = findings('redis')

/** Of a quorum: are there enough members, and is each of them a vote of its own? `refused`: nodes that refuse the login. */
export function checkMembers(plan: RedisCheckPlan, seen: readonly ExaminedServer[], refused = 0): readonly Finding[] {
  const size = plan.clients.length
  if (size <= 1) return []
  return [
    quorum(plan, new Set(seen.map(({ server }) => server.member)).size, refused),
    ...checkVoters(plan, seen),
    count(size),
    ...independence(seen),
    machines(plan),
  ]
}

function quorum({ clients, standings = [] }: RedisCheckPlan, answering: number, refused: number): Finding {
  const id = 'quorum'
  const size = clients.length
  const needed = quorumOf(size)
  const sitting = standings.filter(({ standing }) => standing?.kind === 'out').length
  const voting = Math.max(0, answering - sitting)
  const out = sitting === 0 ? '' : `, ${sitting} of them ${sitting === 1 ? 'sits' : 'sit'} out`
  const found = `${answering} of ${size} nodes answer${out}; ${needed} are needed.`
  const bringBack =
    refused === size - answering
      ? 'Give the clients the right username and password: the other nodes run, and refuse the login.'
      : 'Bring the other nodes back.'
  const remedy = answering < size ? bringBack : 'Wait until all nodes vote again.'
  if (voting < needed) return report.critical(id, found, 'No lease can be granted or renewed.', remedy)
  if (voting === needed && voting < size) {
    return report.warning(id, found, 'Locks work, but not if another node fails.', remedy)
  }
  return report.ok(id, found, `${voting - needed} more may fail.`)
}

function count(size: number): Finding {
  const id = 'node-count'
  const found = `The quorum has ${size} nodes.`
  const bears = Math.ceil(size / 2) - 1
  if (size === 2) {
    const meaning = 'Both are needed for every lease: that is worse than one server, which fails half as often.'
    return report.warning(id, found, meaning, 'Use one, or three.')
  }
  if (size % 2 === 0) {
    const meaning = `${bears} of them may fail, as with ${size - 1}. The additional one can only fail, or split a vote.`
    return report.note(id, found, meaning, `Use ${size - 1}, or ${size + 1}.`)
  }
  return report.ok(id, found, `${bears} of them may fail.`)
}

function independence(seen: readonly ExaminedServer[]): readonly Finding[] {
  const silent = seen.filter(({ facts }) => facts.info('run_id') === undefined)
  const pairs = seen.flatMap((a, index) => seen.slice(index + 1).map((b) => [a, b] as const))
  const found = pairs
    .filter(([a, b]) => a.server.member !== b.server.member)
    .flatMap(([a, b]) => dependence(a, b) ?? [])
  if (silent.length > 0) {
    const what = `whether ${silent.map(({ server }) => server.label).join(', ')} are servers of their own`
    found.push(unknown(report, 'independence', what, silent[0]!.facts.infoRefused, '+info'))
  }
  if (found.length > 0) return found
  const all = `The nodes are ${seen.length} different servers, and none is a replica of another.`
  return [report.ok('independence', all, 'Each of them is a vote of its own.')]
}

function dependence(a: ExaminedServer, b: ExaminedServer): Finding | undefined {
  const id = 'independence'
  const same = (name: string): boolean => a.facts.info(name) !== undefined && a.facts.info(name) === b.facts.info(name)
  if (same('run_id')) {
    return report.critical(
      id,
      `${a.server.label} and ${b.server.label} are one server (run_id ${a.facts.info('run_id')}).`,
      'It has two votes: when it fails or forgets, both are gone, so the quorum bears less than it seems. Of three ' +
        'nodes, this one server then decides alone.',
      'Give every node a server of its own.',
    )
  }
  // A replica has its master's replication id. Two masters never share one.
  const related = same('master_replid') && [a, b].some(({ facts }) => facts.info('role') === 'slave')
  if (!related) return undefined
  const [replica, other] = b.facts.info('role') === 'slave' ? [b, a] : [a, b]
  const [name, otherName] = [replica.server.label, other.server.label]
  return report.critical(
    id,
    other.facts.info('role') === 'slave'
      ? `${name} and ${otherName} are replicas of the same master.`
      : `${name} is a replica of ${otherName}.`,
    'A replica only repeats its master: it is no vote of its own, and refuses writes.',
    `Make it a master (REPLICAOF NO ONE on ${name}) and keep sentinels away from it, or leave it out.`,
  )
}

function machines(plan: RedisCheckPlan): Finding {
  const id = 'machines'
  const hosts = plan.clients
    .filter(({ cluster }) => !cluster)
    .map(({ label }) => /^(.+):\d+$/.exec(label)?.[1] ?? label)
  const shared = [...new Set(hosts)].filter((host) => hosts.filter((other) => other === host).length > 1)
  if (shared.length === 0) {
    const meaning = 'As far as names tell, no machine takes several nodes with it.'
    return report.ok(id, 'Every node has a host of its own.', meaning)
  }
  const most = Math.max(...shared.map((host) => hosts.filter((other) => other === host).length))
  return report.note(
    id,
    `${most} nodes are on the same host (${shared.join(', ')}).`,
    'They fail, restart and lose their clock together: for such failures they are one node.',
    'Run each node on a machine of its own, and best in a zone of its own.',
  )
}
