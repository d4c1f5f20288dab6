import type { Finding } from '../../../engine.ts'
import { sentence, type Findings } from '../../shared/findings.ts'
import { unknown, type ServerFacts } from './facts.ts'
import type { CheckedServer, ServerReply } from './server.ts'

/** Answers to PING of a server that is there but serves nobody, and not even INFO. */
export function notServing({ critical }: Findings, refusal: string): Finding | undefined {
  const found = sentence(`The server answers ${refusal}`)
  if (/\bBUSY\b/.test(refusal)) {
    return critical(
      'state',
      found,
      'A script of another client runs for too long. Until it ends, no lease is granted, renewed or released here.',
      'End it with SCRIPT KILL (FUNCTION KILL for a function), and find out whose it is.',
    )
  }
  if (/\bLOADING\b/.test(refusal)) {
    return critical(
      'state',
      found,
      'The server restarted and reads its data. Until it is done, it answers nobody.',
      'Wait, and look at loading_eta_seconds in INFO persistence.',
    )
  }
  return undefined
}

/** It refuses writes, and PING to let us know, but can be asked for the reason. */
export function servesReads(refusal: string): boolean {
  return /\b(MISCONF|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|OOM)\b/.test(refusal)
}

export async function checkState(
  server: CheckedServer,
  facts: ServerFacts,
  refusal: string | undefined,
): Promise<readonly Finding[]> {
  const { report } = server
  const { cluster } = server.client
  const slots = cluster ? clusterState(await server.ask('CLUSTER', 'INFO')) : 'ok'
  return [
    version(report, facts, cluster),
    mode(report, facts, cluster),
    await role(server, facts),
    state(report, facts, refusal, slots),
  ]
}

function state(
  { ok, warning, critical }: Findings,
  facts: ServerFacts,
  refusal: string | undefined,
  slots: string,
): Finding {
  const id = 'state'
  if (refusal !== undefined) {
    const found = sentence(`The server answers ${refusal}`)
    return critical(id, found, 'It refuses what locks need.', 'The other findings on this server say why.')
  }
  if (slots !== 'ok') {
    return critical(
      id,
      `The cluster_state is ${slots}.`,
      'The Cluster does not serve all slots: locks in the others, or all, are refused with CLUSTERDOWN.',
      'See which masters fail with CLUSTER NODES, and bring them back.',
    )
  }
  const failover = facts.info('master_failover_state') ?? 'no-failover'
  if (failover !== 'no-failover') {
    return warning(
      id,
      `A failover is under way: master_failover_state is ${failover}.`,
      'Writes are held back until it is done. Then another server takes them, which may lack the last ones.',
      'Wait for its end, or stop it with FAILOVER ABORT.',
    )
  }
  return ok(id, 'The server serves commands.', 'Nothing holds it up.')
}

/** SET … GET, by which a grant raises its counter, came with 6.2; the script cache is gone after a restart since 7.0. */
const LEAST = 6.2
const SUPPORTED = 7
/** Sharded pub/sub, by which releases on a Cluster are told. */
const SHARDED = 7

function version(report: Findings, facts: ServerFacts, cluster: boolean): Finding {
  const id = 'version'
  const valkey = facts.info('valkey_version')
  const redis = facts.info('redis_version')
  if (valkey === undefined && redis === undefined) return unknown(report, id, 'the version', facts.infoRefused, '+info')
  const found = `This is ${valkey === undefined ? `Redis ${redis}` : `Valkey ${valkey} (speaks Redis ${redis})`}.`
  const number = Number(/^\d+\.\d+/.exec(redis ?? '')?.[0] ?? SHARDED)
  const upgrade = 'Run Redis 7 or Valkey, or later.'
  if (number < LEAST) {
    const meaning = 'It does not know SET with GET, which the scripts use, so no lease is granted.'
    return report.critical(id, found, meaning, upgrade)
  }
  if (cluster && number < SHARDED) {
    const meaning =
      'It has no SPUBLISH, which wakes waiters on a Cluster: locks should work, but waiters poll. This was never run.'
    return report.warning(id, found, meaning, upgrade)
  }
  if (number < SUPPORTED) {
    const meaning =
      'Locks should work, but this was never run. Its script cache may survive a restart: a node of a quorum that lost leases then votes at once.'
    return report.warning(id, found, meaning, upgrade)
  }
  return report.ok(id, found, 'It has all that the scripts use.')
}

function mode(report: Findings, facts: ServerFacts, cluster: boolean): Finding {
  const id = 'mode'
  const clustered = facts.info('cluster_enabled') === '1'
  const named = facts.info('redis_mode') ?? facts.info('server_mode') ?? (clustered ? 'cluster' : undefined)
  if (named === undefined) return unknown(report, id, 'whether it is part of a Cluster', facts.infoRefused, '+info')
  if (named === 'sentinel') {
    return report.critical(
      id,
      'This is a sentinel, not a server for data.',
      'It grants no lease.',
      'Give the sentinels to the driver as sentinels, and pass its client of the master.',
    )
  }
  if ((named === 'cluster') !== cluster) {
    return cluster
      ? report.critical(
          id,
          'This is a plain server behind a Cluster client.',
          'The client finds no slots to send to.',
          'Pass a plain client of this server.',
        )
      : report.critical(
          id,
          'This is a node of a Cluster behind a plain client.',
          'Locks whose slot another node serves are refused with MOVED; the rest are lost to us when slots move.',
          "Pass the driver's Cluster client with this node in its list.",
        )
  }
  return report.ok(id, `The mode is ${named}, as its client expects.`, 'Commands reach the server of the lock.')
}

async function role(server: CheckedServer, facts: ServerFacts): Promise<Finding> {
  const { report } = server
  const id = 'role'
  const name = facts.info('role') ?? firstOf(await server.ask('ROLE'))
  if (name === undefined) return unknown(report, id, 'whether it is a master', facts.infoRefused, '+info or +role')
  if (name === 'master') return report.ok(id, 'This is a master.', 'It accepts writes.')
  if (name === 'sentinel') return report.critical(id, 'This is a sentinel.', 'It grants no lease.')
  const master = `${facts.info('master_host') ?? '?'}:${facts.info('master_port') ?? '?'}`
  return report.critical(
    id,
    `This is a replica of ${master} (link ${facts.info('master_link_status') ?? 'unknown'}).`,
    'It refuses writes (READONLY), so it grants no lease; if it is writable, what it grants is overwritten.',
    `Pass a client of the master, ${master}; where it may fail over, one that asks the sentinels.`,
  )
}

function firstOf(reply: ServerReply): string | undefined {
  return reply.kind === 'reply' && Array.isArray(reply.value) ? String(reply.value[0]) : undefined
}

/** Not being allowed to ask is no finding: the locks themselves will show it. */
function clusterState(reply: ServerReply): string {
  const text = reply.kind === 'reply' ? String(reply.value) : ''
  return /^cluster_state:(\w+)/m.exec(text)?.[1] ?? 'ok'
}
