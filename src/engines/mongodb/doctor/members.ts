import type { Finding } from '../../../engine.ts'
import type { Reply } from '../doctor.ts'

type Hello = Readonly<Record<string, unknown>>

export function checkDeployment(hello: Hello): Finding {
  const id = 'mongodb/deployment'
  if (hello['msg'] === 'isdbgrid') {
    return {
      id,
      severity: 'warning',
      found: 'a sharded cluster',
      meaning:
        "The time by which leases begin and end is that of the mongos that is asked, not the shard's: routers whose clocks " +
        'differ end each other’s leases earlier or later by as much.',
      remedy:
        'Keep the leases on a replica set of their own; or run NTP or chrony on the machines of all mongos, use ttls that are ' +
        'long against what they may still differ by, and do not shard the collection.',
    }
  }
  if (typeof hello['setName'] === 'string') {
    const found = `the replica set ${hello['setName']}`
    return { id, severity: 'ok', found, meaning: 'A lease counts once a majority of its members has it.' }
  }
  return {
    id,
    severity: 'warning',
    found: 'one server without a replica set',
    meaning:
      'While it is down no lease is granted or renewed, and with its disk the counters are gone: tokens start again at 1. ' +
      'It has no change streams, so that waiters poll.',
    remedy: 'Make it a replica set, best of three members (a single one gives change streams, too).',
  }
}

/** How many may be lost, and are any lost now? */
export function checkMembers(hello: Hello, status: Reply): readonly Finding[] {
  if (typeof hello['setName'] !== 'string') return []
  const data = [...names(hello['hosts']), ...names(hello['passives'])]
  const arbiters = names(hello['arbiters'])
  return [members(data.length, arbiters.length), ...health(status)]
}

function members(data: number, arbiters: number): Finding {
  const id = 'mongodb/members'
  const found = `${data} with data, ${arbiters} ${arbiters === 1 ? 'arbiter' : 'arbiters'}`
  const majority = Math.floor((data + arbiters) / 2) + 1
  const mayFail = Math.max(data - majority, 0)
  if (arbiters > 0) {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        `An arbiter votes for a primary but acknowledges no write: ${majority} members with data must, so ${mayFail} of them ` +
        'may be down. With one more there still is a primary, but no lease is granted or renewed.',
      remedy: 'Replace the arbiter by a member with data.',
    }
  }
  if (mayFail === 0) {
    return {
      id,
      severity: 'warning',
      found,
      meaning: 'A majority is all of them: while one is down no lease is granted or renewed.',
      remedy: 'Have three members with data.',
    }
  }
  return { id, severity: 'ok', found, meaning: `Leases are granted and renewed while at most ${mayFail} are down.` }
}

/** Needs the privilege replSetGetStatus; what really matters is seen by the write. */
function health(status: Reply): readonly Finding[] {
  if (status.kind === 'error' || !Array.isArray(status.value['members'])) return []
  const all = status.value['members'] as { name?: unknown; health?: unknown; stateStr?: unknown }[]
  const down = all.filter(({ health }) => Number(health) !== 1)
  if (down.length === 0) return []
  const told = down.map(({ name, stateStr }) => `${String(name)} ${String(stateStr)}`)
  return [
    {
      id: 'mongodb/health',
      severity: 'warning',
      found: told.join(', '),
      meaning: 'The set can do with fewer further losses than it was built for.',
      remedy: 'Bring it back, or take it out of the set with rs.remove().',
    },
  ]
}

/** Needs the privilege replSetGetConfig. */
export function checkJournal(hello: Hello, config: Reply): readonly Finding[] {
  if (typeof hello['setName'] !== 'string') return []
  const id = 'mongodb/journal'
  if (config.kind === 'error') {
    return [
      {
        id,
        severity: 'note',
        found: `could not find out writeConcernMajorityJournalDefault: ${config.error.message}`,
        meaning: 'This was not checked. It is true unless someone changed it; locks work without the permission.',
        remedy: 'Allow this user replSetGetConfig (in the role clusterMonitor), or look at rs.conf().',
      },
    ]
  }
  const settings = config.value['config'] as { writeConcernMajorityJournalDefault?: unknown } | undefined
  if (settings?.writeConcernMajorityJournalDefault !== false) {
    const found = 'writeConcernMajorityJournalDefault true'
    return [{ id, severity: 'ok', found, meaning: 'What a majority has, it has on disk.' }]
  }
  return [
    {
      id,
      severity: 'warning',
      found: 'writeConcernMajorityJournalDefault false',
      meaning:
        'Members with their data in memory alone, or that count a write before it is on disk, may forget leases and ' +
        'counters when a majority of them crashes. The locks ask for the journal with each write, which only members that ' +
        'have one can heed.',
      remedy: 'Set it to true in rs.conf() and run members with data on disk.',
    },
  ]
}

function names(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
