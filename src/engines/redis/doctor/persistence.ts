import type { Finding } from '../../../engine.ts'
import type { Findings } from '../../shared/findings.ts'
import type { Replay } from '../voters/replay.ts'
import { unknown, type ServerFacts } from './facts.ts'
import type { RedisCheckPlan } from './server.ts'

/** What does the server forget when it restarts, and what does that do to the leases and their counters? */
export function checkPersistence(report: Findings, facts: ServerFacts, plan: RedisCheckPlan): readonly Finding[] {
  if (facts.info('aof_enabled') === undefined && facts.configRefused !== undefined) {
    return [unknown(report, 'persistence', 'what it keeps at a restart', facts.infoRefused, '+info and +config|get')]
  }
  return [memoryLoss(report, facts, plan), ...(facts.infoRefused === undefined ? [writeErrors(report, facts)] : [])]
}

/** Not even its stamp: after a restart it looks like a new one. */
export function keepsNothing(facts: ServerFacts): boolean {
  return facts.setting('appendonly') === 'no' && facts.setting('save') === ''
}

/** Why it is not shown that the file is replayed whole. */
const SITS_OUT: Partial<Record<Replay, string>> = {
  changed:
    'since its last start ACL SETUSER, ACL LOAD or CONFIG RESETSTAT was called, so the rights that the user default has at the next start are ' +
    'not known; after a restart without such calls they are',
  'not told': 'the rights of the user default could not be asked for (+acl|dryrun, since Redis 7)',
}

type Keeps =
  | { readonly kind: 'all' }
  | { readonly kind: 'unsure' }
  | { readonly kind: 'all but during rewrites' }
  | { readonly kind: 'some'; readonly forgotten: string }

function memoryLoss(report: Findings, facts: ServerFacts, plan: RedisCheckPlan): Finding {
  const id = 'persistence'
  const { keeps, settings } = kept(facts)
  const found = `Its persistence is set to ${settings}.`
  const quorum = plan.clients.length > 1
  const durable =
    'appendonly yes and appendfsync always (CONFIG SET appendonly yes; CONFIG SET appendfsync always; both also in its configuration file)'
  if (keeps.kind === 'unsure') {
    const sitsOut =
      plan.restart === 'auto' && quorum ? ' A node that may not be asked sits out after every restart.' : ''
    const what = unknown(report, id, `how often it writes to disk (${settings})`, facts.configRefused, '+config|get')
    return { ...what, meaning: `With appendfsync always it forgets nothing, otherwise its last second.${sitsOut}` }
  }
  const { replay } = facts
  if (keeps.kind === 'all' && (replay === 'no rights' || replay === 'left out')) {
    const but =
      replay === 'no rights'
        ? 'But the user default has no right to write.'
        : 'But when it started it left something of its file out.'
    return report.critical(
      id,
      `${found} ${but}`,
      'A server that starts replays its file as that user. Redis 7 and Valkey 8 then leave out what scripts have written: the leases and their ' +
        'counters are forgotten, without an error.',
      'Switch default off and leave it its rights in the ACL file: user default off ~* &* +@all. Nobody can log in as a user that is off. Then ACL LOAD.',
    )
  }
  if (keeps.kind === 'all') {
    const why =
      plan.restart === 'strict' ? "restart is 'strict'" : plan.restart === 'auto' ? SITS_OUT[replay] : undefined
    const waits = quorum && why !== undefined ? ` It sits out nevertheless: ${why}.` : ''
    return report.ok(id, found, `A restart forgets no lease and no fencing counter.${waits}`)
  }
  if (keeps.kind === 'all but during rewrites') {
    return report.warning(
      id,
      found,
      'It looks as if a restart forgot nothing, but what was written while a rewrite or snapshot ran is forgotten if the ' +
        'machine goes down at that time.',
      'CONFIG SET no-appendfsync-on-rewrite no',
    )
  }
  const { forgotten } = keeps
  if (!quorum) {
    return report.warning(
      id,
      found,
      `A restart forgets ${forgotten}, and the server grants them anew at once: two holders. Tokens after that are ` +
        'surely higher only if it was away for more than 4 s.',
      `Set ${durable}; or use a quorum of masters, where a node that restarted sits out.`,
    )
  }
  if (plan.restart === 'trust') {
    return report.critical(
      id,
      found,
      `A restart forgets ${forgotten}, and with restart: 'trust' the node votes at once: with its vote a second ` +
        'client can win a lease that is still held.',
      `Set ${durable}; or leave restart at 'auto'.`,
    )
  }
  return report.note(
    id,
    found,
    `A restart forgets ${forgotten}. The node then does not vote until every lease it may have forgotten is over ` +
      '(maxTtl and a second). Restart nodes one at a time, or no quorum is left for that long, and leases are lost.',
    `Set ${durable} where nodes must vote again at once after a restart.`,
  )
}

function kept(facts: ServerFacts): { readonly keeps: Keeps; readonly settings: string } {
  const aof = facts.setting('appendonly') ?? (facts.info('aof_enabled') === '1' ? 'yes' : 'no')
  const sync = facts.setting('appendfsync')
  if (aof !== 'yes') return snapshots(facts)
  if (sync === undefined) return { keeps: { kind: 'unsure' }, settings: 'appendonly yes, appendfsync unknown' }
  const settings = `appendonly yes, appendfsync ${sync}`
  if (sync === 'always') {
    if (facts.setting('no-appendfsync-on-rewrite') !== 'yes') return { keeps: { kind: 'all' }, settings }
    return { keeps: { kind: 'all but during rewrites' }, settings: `${settings}, but no-appendfsync-on-rewrite yes` }
  }
  const forgotten =
    sync === 'everysec'
      ? 'the last second or two when the machine goes down (rarely when only the process does)'
      : 'what the operating system has not written yet (30 s and more) when the machine goes down'
  return { keeps: { kind: 'some', forgotten }, settings }
}

function snapshots(facts: ServerFacts): { readonly keeps: Keeps; readonly settings: string } {
  const save = facts.setting('save')
  if (save === undefined)
    return { keeps: { kind: 'some', forgotten: 'at least all since its last snapshot' }, settings: 'appendonly no' }
  if (save === '')
    return {
      keeps: { kind: 'some', forgotten: 'all leases and fencing counters' },
      settings: 'appendonly no, save "" (nothing is written to disk)',
    }
  const changes = facts.number('rdb_changes_since_last_save')
  const now = changes === undefined ? '' : `; ${changes} changes are in no snapshot now`
  return {
    keeps: { kind: 'some', forgotten: 'all since its last snapshot' },
    settings: `appendonly no, save "${save}"${now}`,
  }
}

function writeErrors(report: Findings, facts: ServerFacts): Finding {
  const id = 'disk-errors'
  const failing = (name: string): boolean => (facts.info(name) ?? 'ok') !== 'ok'
  const names = ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'].filter(failing)
  if (names.length === 0) return report.ok(id, 'The last writes to disk went well.', 'Disk errors stop no writes.')
  const snapshotStops =
    failing('rdb_last_bgsave_status') &&
    facts.setting('save') !== '' &&
    facts.setting('stop-writes-on-bgsave-error') !== 'no'
  const found = `In INFO, ${names.map((name) => `${name} is ${facts.info(name)}`).join(', ')}.`
  const remedy =
    "See the server's log for the cause: a full disk, or a folder it may not write to. Then run BGSAVE or BGREWRITEAOF."
  return snapshotStops || failing('aof_last_write_status')
    ? report.critical(
        id,
        found,
        'The server refuses writes with MISCONF until it can write again: no lease is granted or renewed.',
        remedy,
      )
    : report.warning(id, found, 'What a restart keeps is getting older.', remedy)
}
