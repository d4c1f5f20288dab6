import { unknown, type Facts, type Replica } from './facts.ts'
import type { CheckPlan, Diagnosis } from './patient.ts'

/** Are there replicas, and what would one of them lack that takes over? */
export function checkReplication(facts: Facts, plan: CheckPlan): readonly Diagnosis[] {
  // Of a replica only its role is worth a word.
  if (facts.info('role') === 'slave') return []
  if (facts.info('connected_slaves') === undefined) {
    return [unknown('redis/replicas', 'whether it has replicas', facts.infoRefused, '+info')]
  }
  return [replicas(facts, plan), ...leastReplicas(facts, plan)]
}

function replicas(facts: Facts, plan: CheckPlan): Diagnosis {
  const id = 'redis/replicas'
  const all = facts.replicas
  const online = all.filter(({ state }) => state === 'online')
  const found =
    all.length === 0 ? 'no replicas' : `${all.length} replicas: ${all.map((one) => told(one, facts)).join('; ')}`
  const asked = plan.replicas ?? 0
  if (asked > online.length) {
    return {
      id,
      severity: 'critical',
      found,
      meaning: `replicas: ${asked} is asked for, so no lease is granted or renewed while fewer are online.`,
      remedy: 'Bring replicas up (REPLICAOF on them), or ask for fewer.',
    }
  }
  if (all.length === 0) {
    return {
      id,
      severity: 'ok',
      found,
      meaning: 'No failover can put a server in its place that lacks the last leases.',
    }
  }
  if (plan.clients.length > 1) {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        'Replication is asynchronous: a replica that takes the place of a node may lack leases that the node voted for, ' +
        'and votes at once, since it did not restart. The node is then one that forgot.',
      remedy:
        'Run the nodes of a quorum without automatic failover: let a node that fails stay away, the others go on. ' +
        'Replicas for backups do no harm (replica-priority 0 keeps sentinels from promoting them).',
    }
  }
  if (asked > 0) {
    return {
      id,
      severity: 'note',
      found,
      meaning:
        `A lease counts once ${asked} of them have it (WAIT). A failover that promotes one of the others can still lose ` +
        'it: WAIT makes that rare, not impossible. Fencing tokens keep it harmless.',
    }
  }
  return {
    id,
    severity: 'warning',
    found,
    meaning:
      'Replication is asynchronous: after a failover the new master may lack the last leases and grant them again, ' +
      'while their holders still work.',
    remedy: `redis(client, { replicas: ${Math.min(1, online.length)} }) grants only what a replica has acknowledged (WAIT); a quorum of masters does not depend on replication.`,
  }
}

function told({ address, state, offset, lagSeconds }: Replica, facts: Facts): string {
  const behind = Math.max(0, (facts.number('master_repl_offset') ?? offset) - offset)
  return state === 'online' ? `${address} ${behind} bytes behind, heard ${lagSeconds} s ago` : `${address} ${state}`
}

/** The master's own bound on how long it goes on granting while its replicas are cut off and one may be promoted. */
function leastReplicas(facts: Facts, plan: CheckPlan): readonly Diagnosis[] {
  const id = 'redis/min-replicas'
  const least = Number(facts.setting('min-replicas-to-write') ?? Number.NaN)
  const lag = Number(facts.setting('min-replicas-max-lag') ?? Number.NaN)
  const count = facts.replicas.length
  if (Number.isNaN(least)) {
    return count === 0 ? [] : [unknown(id, 'min-replicas-to-write', facts.configRefused, '+config|get')]
  }
  const found = `min-replicas-to-write ${least}, min-replicas-max-lag ${lag}`
  const good = facts.replicas.filter(({ state, lagSeconds }) => state === 'online' && lagSeconds <= lag).length
  if (least > 0 && lag > 0) {
    if (good < least) {
      const meaning = `Only ${good} replicas are in step, so the server refuses writes with NOREPLICAS: no lease is granted.`
      return [
        {
          id,
          severity: 'critical',
          found,
          meaning,
          remedy: 'Bring replicas up, or CONFIG SET min-replicas-to-write 0.',
        },
      ]
    }
    const meaning = `A master cut off from its replicas stops granting after about ${lag} s.`
    return [{ id, severity: 'ok', found, meaning }]
  }
  // In a quorum a failover is the harm itself, and that was said.
  if (count === 0 || plan.clients.length > 1) return []
  return [
    {
      id,
      severity: 'note',
      found,
      meaning:
        'A master that is cut off goes on granting leases although a replica may have taken its place: two holders.',
      remedy: 'CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 10 bound that to 10 s.',
    },
  ]
}
