import { unknown, type Facts } from './facts.ts'
import type { CheckPlan, Diagnosis } from './patient.ts'

/** What does the server forget when it restarts, and what does that do to the leases and their counters? */
export function checkPersistence(facts: Facts, plan: CheckPlan): readonly Diagnosis[] {
  if (facts.info('aof_enabled') === undefined && facts.configRefused !== undefined) {
    return [unknown('redis/persistence', 'what it keeps at a restart', facts.infoRefused, '+info and +config|get')]
  }
  return [memoryLoss(facts, plan), ...(facts.infoRefused === undefined ? [writeErrors(facts)] : [])]
}

type Keeps =
  | { readonly kind: 'all' }
  | { readonly kind: 'unsure' }
  | { readonly kind: 'all but during rewrites' }
  | { readonly kind: 'some'; readonly forgotten: string }

function memoryLoss(facts: Facts, plan: CheckPlan): Diagnosis {
  const id = 'redis/persistence'
  const { keeps, found } = kept(facts)
  const quorum = plan.clients.length > 1
  const durable = 'appendonly yes and appendfsync always (CONFIG SET appendonly yes; CONFIG SET appendfsync always)'
  if (keeps.kind === 'unsure') {
    const sitsOut =
      plan.restart === 'auto' && quorum ? ' A node that may not be asked sits out after every restart.' : ''
    const what = unknown(id, `how often it writes to disk (${found})`, facts.configRefused, '+config|get')
    return { ...what, meaning: `With appendfsync always it forgets nothing, otherwise its last second.${sitsOut}` }
  }
  if (keeps.kind === 'all') {
    const waits = quorum && plan.restart === 'strict' ? " With restart: 'strict' it sits out all the same." : ''
    return { id, severity: 'ok', found, meaning: `A restart forgets no lease and no fencing counter.${waits}` }
  }
  if (keeps.kind === 'all but during rewrites') {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        'It looks as if a restart forgot nothing, but what came in while a rewrite or snapshot ran is forgotten if the ' +
        'machine goes down then.',
      remedy: 'CONFIG SET no-appendfsync-on-rewrite no',
    }
  }
  const { forgotten } = keeps
  if (!quorum) {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        `A restart forgets ${forgotten}, and the server grants them anew at once: two holders. Tokens after that are ` +
        'surely higher only if it was away for more than 4 s.',
      remedy: `Set ${durable}; or use a quorum of masters, where a node that restarted sits out.`,
    }
  }
  if (plan.restart === 'trust') {
    return {
      id,
      severity: 'critical',
      found,
      meaning:
        `A restart forgets ${forgotten}, and with restart: 'trust' the node votes at once: with its vote a second ` +
        'client can win a lease that is still held.',
      remedy: `Set ${durable}; or leave restart at 'auto'.`,
    }
  }
  return {
    id,
    severity: 'note',
    found,
    meaning:
      `A restart forgets ${forgotten}. The node then does not vote until every lease it may have forgotten is over ` +
      '(maxTtl), so that nothing is lost; restart nodes one at a time, or no quorum is left for that long.',
    remedy: `Set ${durable} where nodes must vote again at once after a restart.`,
  }
}

function kept(facts: Facts): { readonly keeps: Keeps; readonly found: string } {
  const aof = facts.setting('appendonly') ?? (facts.info('aof_enabled') === '1' ? 'yes' : 'no')
  const sync = facts.setting('appendfsync')
  if (aof !== 'yes') return snapshots(facts)
  if (sync === undefined) return { keeps: { kind: 'unsure' }, found: 'appendonly yes, appendfsync unknown' }
  const found = `appendonly yes, appendfsync ${sync}`
  if (sync === 'always') {
    if (facts.setting('no-appendfsync-on-rewrite') !== 'yes') return { keeps: { kind: 'all' }, found }
    return { keeps: { kind: 'all but during rewrites' }, found: `${found}, but no-appendfsync-on-rewrite yes` }
  }
  const forgotten =
    sync === 'everysec'
      ? 'the last second or two when the machine goes down (rarely when only the process does)'
      : 'what the operating system has not written yet (30 s and more) when the machine goes down'
  return { keeps: { kind: 'some', forgotten }, found }
}

function snapshots(facts: Facts): { readonly keeps: Keeps; readonly found: string } {
  const save = facts.setting('save')
  if (save === undefined)
    return { keeps: { kind: 'some', forgotten: 'at least all since its last snapshot' }, found: 'appendonly no' }
  if (save === '')
    return {
      keeps: { kind: 'some', forgotten: 'all leases and fencing counters' },
      found: 'appendonly no, save "" (nothing is written to disk)',
    }
  const changes = facts.number('rdb_changes_since_last_save')
  const now = changes === undefined ? '' : `; ${changes} changes are in no snapshot now`
  return {
    keeps: { kind: 'some', forgotten: 'all since its last snapshot' },
    found: `appendonly no, save "${save}"${now}`,
  }
}

function writeErrors(facts: Facts): Diagnosis {
  const id = 'redis/disk-errors'
  const failing = (name: string): boolean => (facts.info(name) ?? 'ok') !== 'ok'
  const names = ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'].filter(failing)
  if (names.length === 0) {
    return { id, severity: 'ok', found: 'the last writes to disk went well', meaning: 'Disk errors stop no writes.' }
  }
  const snapshotStops =
    failing('rdb_last_bgsave_status') &&
    facts.setting('save') !== '' &&
    facts.setting('stop-writes-on-bgsave-error') !== 'no'
  const stops = snapshotStops || failing('aof_last_write_status')
  return {
    id,
    severity: stops ? 'critical' : 'warning',
    found: names.map((name) => `${name} is ${facts.info(name)}`).join(', '),
    meaning: stops
      ? 'The server refuses writes with MISCONF until it can write again: no lease is granted or renewed.'
      : 'What a restart keeps is getting older.',
    remedy:
      "See the server's log for the cause: a full disk, or a folder it may not write to; then run BGSAVE or BGREWRITEAOF.",
  }
}
