import type { Finding } from '../../../engine.ts'
import type { Findings } from '../../shared/findings.ts'
import { unknown, type Replica, type ServerFacts } from './facts.ts'
import type { RedisCheckPlan } from './server.ts'

/** Are there replicas, and what would one of them lack that takes over? */
export function checkReplication(report: Findings, facts: ServerFacts, plan: RedisCheckPlan): readonly Finding[] {
  // Of a replica only its role is worth a finding.
  if (facts.info('role') === 'slave') return []
  if (facts.info('connected_slaves') === undefined) {
    return [unknown(report, 'replicas', 'whether it has replicas', facts.infoRefused, '+info')]
  }
  return [replicas(report, facts, plan), ...leastReplicas(report, facts, plan)]
}

function replicas(report: Findings, facts: ServerFacts, plan: RedisCheckPlan): Finding {
  const id = 'replicas'
  const all = facts.replicas
  const online = all.filter(({ state }) => state === 'online')
  const found =
    all.length === 0
      ? 'The server has no replicas.'
      : `The server has ${all.length} ${all.length === 1 ? 'replica' : 'replicas'}: ${all.map((one) => shown(one, facts)).join('; ')}.`
  const wanted = plan.replicas ?? 0
  if (wanted > online.length) {
    return report.critical(
      id,
      found,
      `The engine has replicas: ${wanted}, so no lease is granted or renewed while fewer are online.`,
      'Bring replicas up (REPLICAOF on them), or ask for fewer.',
    )
  }
  if (all.length === 0) {
    return report.ok(id, found, 'No failover can put a server in its place that lacks the last leases.')
  }
  if (plan.clients.length > 1) {
    return report.warning(
      id,
      found,
      'Replication is asynchronous: a replica that takes the place of a node may lack leases that the node voted for. ' +
        'It sits out; but if it restarted after its promotion, with appendfsync always, it votes at once.',
      'Run the nodes of a quorum without automatic failover: let a node that fails stay away, the others go on. ' +
        'Replicas for backups do no harm (replica-priority 0 keeps sentinels from promoting them).',
    )
  }
  if (wanted > 0) {
    return report.note(
      id,
      found,
      `A lease counts once ${wanted} of them have it (WAIT). A failover that promotes another one can still lose it: WAIT ` +
        'makes that rare, not impossible. Fencing tokens keep it harmless.',
    )
  }
  return report.warning(
    id,
    found,
    'Replication is asynchronous: after a failover the new master may lack the last leases and grant them again, ' +
      'while their holders still work.',
    `${online.length === 0 ? 'Wait until a replica is online. Then ' : ''}redis(client, { replicas: 1 }) grants only what ` +
      'a replica has acknowledged (WAIT); a quorum of masters does not depend on replication.',
  )
}

function shown({ address, state, offset, lagSeconds }: Replica, facts: ServerFacts): string {
  const behind = Math.max(0, (facts.number('master_repl_offset') ?? offset) - offset)
  return state === 'online'
    ? `${address} is ${behind} bytes behind, heard ${lagSeconds} s ago`
    : `${address} is in ${state}`
}

/** The master's own bound on how long it goes on granting while its replicas are cut off and one may be promoted. */
function leastReplicas(report: Findings, facts: ServerFacts, plan: RedisCheckPlan): readonly Finding[] {
  const id = 'min-replicas'
  const least = Number(facts.setting('min-replicas-to-write') ?? Number.NaN)
  const lag = Number(facts.setting('min-replicas-max-lag') ?? Number.NaN)
  const count = facts.replicas.length
  if (Number.isNaN(least)) {
    return count === 0 ? [] : [unknown(report, id, 'min-replicas-to-write', facts.configRefused, '+config|get')]
  }
  const found = `The setting min-replicas-to-write is ${least}, and min-replicas-max-lag is ${lag}.`
  const good = facts.replicas.filter(({ state, lagSeconds }) => state === 'online' && lagSeconds <= lag).length
  if (least > 0 && lag > 0) {
    if (good < least) {
      const meaning = `Only ${good} replicas are in step, so the server refuses writes with NOREPLICAS: no lease is granted.`
      return [report.critical(id, found, meaning, 'Bring replicas up, or CONFIG SET min-replicas-to-write 0.')]
    }
    return [report.ok(id, found, `A master cut off from its replicas stops granting after about ${lag} s.`)]
  }
  // In a quorum the failover itself is the harm, and it has a finding already.
  if (count === 0 || plan.clients.length > 1) return []
  return [
    report.note(
      id,
      found,
      'A master that is cut off goes on granting leases although a replica may have taken its place: two holders.',
      'CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 10 bound that to 10 s.',
    ),
  ]
}
