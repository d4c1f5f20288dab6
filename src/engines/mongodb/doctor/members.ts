import type { Finding } from '../../../engine.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { text } from '../../shared/shape.ts'
import type { CommandResult } from './commands.ts'

type HelloReply = Readonly<Record<string, unknown>>

const { ok, note, warning } = findings('mongodb')

export function checkDeployment(hello: HelloReply): Finding {
  const id = 'deployment'
  if (hello['msg'] === 'isdbgrid') {
    return warning(
      id,
      'This is a sharded cluster.',
      'Leases begin and end by the clock of the mongos that is asked, not by the clock of the shard. If the clocks of two ' +
        'mongos differ, each ends the leases of the other earlier or later by that much.',
      'Keep the leases on a replica set of their own. Otherwise run NTP or chrony on the machines of all mongos, use ttls that ' +
        'are long compared with the difference of their clocks, and do not shard the collection.',
    )
  }
  if (typeof hello['setName'] === 'string') {
    return ok(
      id,
      `This is the replica set ${hello['setName']}.`,
      'A lease counts once a majority of its members has it.',
    )
  }
  return warning(
    id,
    'This is one server without a replica set.',
    'While it is down no lease is granted or renewed. If its disk is lost, the counters are lost too, and tokens start again at ' +
      '1. It has no change streams, so waiters poll.',
    'Make it a replica set, if possible of three members (one member is enough for change streams).',
  )
}

/** How many members may be lost, and are any lost now? */
export function checkMembers(hello: HelloReply, status: CommandResult): readonly Finding[] {
  if (typeof hello['setName'] !== 'string') return []
  const data = [...names(hello['hosts']), ...names(hello['passives'])]
  const arbiters = names(hello['arbiters'])
  return [members(data.length, arbiters.length), ...health(status)]
}

function members(data: number, arbiters: number): Finding {
  const id = 'members'
  const found = `The set has ${data} ${data === 1 ? 'member' : 'members'} with data and ${arbiters} ${arbiters === 1 ? 'arbiter' : 'arbiters'}.`
  const majority = Math.floor((data + arbiters) / 2) + 1
  const mayFail = Math.max(data - majority, 0)
  if (arbiters > 0) {
    return warning(
      id,
      found,
      `An arbiter votes for a primary but acknowledges no write: ${majority} members with data must, so ${mayFail} of them ` +
        'may be down. If one more is down there is still a primary, but no lease is granted or renewed.',
      'Replace the arbiter by a member with data.',
    )
  }
  if (mayFail === 0) {
    return warning(
      id,
      found,
      'A majority is all of them: while one is down no lease is granted or renewed.',
      'Have three members with data.',
    )
  }
  return ok(
    id,
    found,
    `Leases are granted and renewed while at most ${mayFail} of them ${mayFail === 1 ? 'is' : 'are'} down.`,
  )
}

/** Needs the privilege replSetGetStatus. The write of the doctor shows what really matters. */
function health(status: CommandResult): readonly Finding[] {
  if (status.kind === 'error' || !Array.isArray(status.value['members'])) return []
  const all = status.value['members'] as readonly unknown[]
  const down = all
    .filter((member) => text(member, 'health') !== '1')
    .map(
      (member) =>
        `${text(member, 'name') ?? 'one without a name'} (${text(member, 'stateStr') ?? 'in no known state'})`,
    )
  if (down.length === 0) return []
  return [
    warning(
      'health',
      `${down.length === 1 ? 'A member is' : 'Members are'} down: ${down.join(', ')}.`,
      'The set survives fewer further losses than it was built for.',
      'Bring each of them back, or remove it from the set with rs.remove().',
    ),
  ]
}

/** Needs the privilege replSetGetConfig. */
export function checkJournal(hello: HelloReply, config: CommandResult): readonly Finding[] {
  if (typeof hello['setName'] !== 'string') return []
  const id = 'journal'
  if (config.kind === 'error') {
    return [
      note(
        id,
        sentence(`writeConcernMajorityJournalDefault could not be read: ${config.error.message}`),
        'This was not checked. It is true unless someone changed it; locks work without the permission.',
        'Allow this user replSetGetConfig (in the role clusterMonitor), or look at rs.conf().',
      ),
    ]
  }
  const settings = config.value['config'] as { writeConcernMajorityJournalDefault?: unknown } | undefined
  if (settings?.writeConcernMajorityJournalDefault !== false) {
    return [
      ok(id, 'writeConcernMajorityJournalDefault is true.', 'What a majority has acknowledged is on their disks.'),
    ]
  }
  return [
    warning(
      id,
      'writeConcernMajorityJournalDefault is false.',
      'Members that keep their data in memory only, or acknowledge a write before it is on disk, may forget leases and ' +
        'counters when a majority of them crashes. The locks ask for the journal with each write, but a member without a ' +
        'journal cannot do that.',
      'Set it to true in rs.conf(), and run members with data on disk.',
    ),
  ]
}

function names(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
