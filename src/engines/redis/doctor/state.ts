import { unknown, type Facts } from './facts.ts'
import type { Diagnosis, Patient, Reply } from './patient.ts'

/** Answers to PING of a server that is there but serves nobody, and INFO neither. */
export function notServing(refusal: string): Diagnosis | undefined {
  const found = `answers ${refusal}`
  if (/\bBUSY\b/.test(refusal)) {
    return {
      id: 'redis/state',
      severity: 'critical',
      found,
      meaning: 'A script of somebody runs for too long; until it ends, no lease is granted, renewed or released here.',
      remedy: 'End it with SCRIPT KILL (FUNCTION KILL for a function), and find out whose it is.',
    }
  }
  if (/\bLOADING\b/.test(refusal)) {
    return {
      id: 'redis/state',
      severity: 'critical',
      found,
      meaning: 'The server restarted and reads its data; until it is done, it answers nobody.',
      remedy: 'Wait, and look at loading_eta_seconds in INFO persistence.',
    }
  }
  return undefined
}

/** It refuses writes, and PING to let us know, but can be asked what is the matter. */
export function servesReads(refusal: string): boolean {
  return /\b(MISCONF|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|OOM)\b/.test(refusal)
}

export async function checkState(
  patient: Patient,
  facts: Facts,
  refusal: string | undefined,
): Promise<readonly Diagnosis[]> {
  const { cluster } = patient.client
  const slots = cluster ? clusterState(await patient.ask('CLUSTER', 'INFO')) : 'ok'
  return [version(facts, cluster), mode(facts, cluster), await role(patient, facts), state(facts, refusal, slots)]
}

function state(facts: Facts, refusal: string | undefined, slots: string): Diagnosis {
  const id = 'redis/state'
  if (refusal !== undefined) {
    const remedy = 'The other findings on this server say why.'
    return { id, severity: 'critical', found: `answers ${refusal}`, meaning: 'It refuses what locks need.', remedy }
  }
  if (slots !== 'ok') {
    return {
      id,
      severity: 'critical',
      found: `cluster_state is ${slots}`,
      meaning: 'The Cluster does not serve all slots: locks in the others, or all, are refused with CLUSTERDOWN.',
      remedy: 'See which masters fail with CLUSTER NODES, and bring them back.',
    }
  }
  const failover = facts.info('master_failover_state') ?? 'no-failover'
  if (failover !== 'no-failover') {
    return {
      id,
      severity: 'warning',
      found: `a failover is under way: master_failover_state is ${failover}`,
      meaning:
        'Writes are held back until it is done, and then come from another server, which may lack the last ones.',
      remedy: 'Wait for its end, or stop it with FAILOVER ABORT.',
    }
  }
  return { id, severity: 'ok', found: 'serves commands', meaning: 'Nothing holds it up.' }
}

/** SET … GET, by which a grant raises its counter, came with 6.2; the script cache is gone after a restart since 7.0. */
const LEAST = 6.2
const SUPPORTED = 7
/** Sharded pub/sub, by which releases on a Cluster are told. */
const SHARDED = 7

function version(facts: Facts, cluster: boolean): Diagnosis {
  const id = 'redis/version'
  const valkey = facts.info('valkey_version')
  const redis = facts.info('redis_version')
  if (valkey === undefined && redis === undefined) {
    return unknown(id, 'the version', facts.infoRefused, '+info')
  }
  const found = valkey === undefined ? `Redis ${redis}` : `Valkey ${valkey} (speaks Redis ${redis})`
  const number = Number(/^\d+\.\d+/.exec(redis ?? '')?.[0] ?? SHARDED)
  const upgrade = 'Run Redis 7 or Valkey, or later.'
  if (number < LEAST || (cluster && number < SHARDED)) {
    const meaning =
      number < LEAST
        ? 'It does not know SET with GET, which the scripts use, so no lease is granted.'
        : 'It has no SPUBLISH, by which a release on a Cluster is told: every release fails.'
    return { id, severity: 'critical', found, meaning, remedy: upgrade }
  }
  if (number < SUPPORTED) {
    const meaning =
      'Locks work, but its script cache may survive a restart, so a node of a quorum that lost leases votes at once.'
    return { id, severity: 'warning', found, meaning, remedy: upgrade }
  }
  return { id, severity: 'ok', found, meaning: 'It has all that the scripts use.' }
}

function mode(facts: Facts, cluster: boolean): Diagnosis {
  const id = 'redis/mode'
  const clustered = facts.info('cluster_enabled') === '1'
  const named = facts.info('redis_mode') ?? facts.info('server_mode') ?? (clustered ? 'cluster' : undefined)
  if (named === undefined) return unknown(id, 'whether it is part of a Cluster', facts.infoRefused, '+info')
  if (named === 'sentinel') {
    return {
      id,
      severity: 'critical',
      found: 'this is a sentinel, not a server for data',
      meaning: 'It grants no lease.',
      remedy: 'Give the sentinels to the driver as such, and pass its client of the master.',
    }
  }
  if ((named === 'cluster') !== cluster) {
    const found = cluster ? 'a plain server behind a Cluster client' : 'a node of a Cluster behind a plain client'
    return {
      id,
      severity: 'critical',
      found,
      meaning: cluster
        ? 'The client finds no slots to send to.'
        : 'Locks whose slot another node serves are refused with MOVED; the rest are lost to us when slots move.',
      remedy: cluster
        ? 'Pass a plain client of this server.'
        : "Pass the driver's Cluster client with this node in its list.",
    }
  }
  return {
    id,
    severity: 'ok',
    found: `${named}, as its client expects`,
    meaning: 'Commands reach the server of the lock.',
  }
}

async function role(patient: Patient, facts: Facts): Promise<Diagnosis> {
  const id = 'redis/role'
  const name = facts.info('role') ?? firstOf(await patient.ask('ROLE'))
  if (name === undefined) return unknown(id, 'whether it is a master', facts.infoRefused, '+info or +role')
  if (name === 'master') return { id, severity: 'ok', found: 'a master', meaning: 'It accepts writes.' }
  if (name === 'sentinel') return { id, severity: 'critical', found: 'a sentinel', meaning: 'It grants no lease.' }
  const master = `${facts.info('master_host') ?? '?'}:${facts.info('master_port') ?? '?'}`
  return {
    id,
    severity: 'critical',
    found: `a replica of ${master} (link ${facts.info('master_link_status') ?? 'unknown'})`,
    meaning: 'It refuses writes (READONLY), so it grants no lease; if it is writable, what it grants is overwritten.',
    remedy: `Pass a client of the master, ${master}; where it may fail over, one that asks the sentinels.`,
  }
}

function firstOf(reply: Reply): string | undefined {
  return reply.kind === 'reply' && Array.isArray(reply.value) ? String(reply.value[0]) : undefined
}

/** Not being allowed to ask is no finding: the locks themselves will tell. */
function clusterState(reply: Reply): string {
  const text = reply.kind === 'reply' ? String(reply.value) : ''
  return /^cluster_state:(\w+)/m.exec(text)?.[1] ?? 'ok'
}
