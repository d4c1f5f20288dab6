import { expect, test } from 'vitest'
import { checkCollection } from '../../../../src/engines/mongodb/doctor/collection.ts'
import { checkDeployment, checkMembers } from '../../../../src/engines/mongodb/doctor/members.ts'
import { checkVersion } from '../../../../src/engines/mongodb/doctor/server.ts'
import type { CommandResult } from '../../../../src/engines/mongodb/doctor/commands.ts'

// What no server of the tests is: the others are seen on real ones.

function reply(value: Record<string, unknown>): CommandResult {
  return { kind: 'reply', value, tookMs: 1, wallMs: 0 }
}

const denied: CommandResult = { kind: 'error', error: new Error('not authorized') }

test.each([
  ['3.6.23', 'critical'],
  ['4.2.24', 'critical'],
  ['4.4.0', 'ok'],
  ['5.0.1', 'ok'],
  ['10.0.0', 'ok'],
  ['unheard-of', 'note'],
])('version %s: %s', (version, severity) => {
  expect(checkVersion(reply({ version }))).toMatchObject({ severity })
})

test('a server that does not tell its version', () => {
  expect(checkVersion(denied)).toMatchObject({ severity: 'note' })
})

test.each([Object.create(null) as object, null, { toString: 1 }, [undefined]])(
  'no text where text belongs: %j',
  (no) => {
    const batch = (one: unknown): CommandResult => reply({ cursor: { firstBatch: [one] } })
    expect(checkVersion(reply({ version: no }))).toMatchObject({ severity: 'note' })
    const members = [no, { name: no, health: no, stateStr: no }]
    expect(checkMembers({ setName: 'rs0' }, reply({ members })).at(-1)).toMatchObject({ id: 'mongodb/health' })
    const index = { name: no, expireAfterSeconds: no }
    const listed = { type: no, options: { collation: { locale: no } } }
    expect(checkCollection('leases', batch(no), batch(no))).toMatchObject([{ severity: 'critical' }])
    const severities = ['critical', 'warning', 'critical']
    expect(checkCollection('leases', batch(listed), batch(index)).map(({ severity }) => severity)).toEqual(severities)
  },
)

test('a sharded cluster: its routers keep the time', () => {
  const finding = checkDeployment({ msg: 'isdbgrid' })
  expect(finding).toMatchObject({ severity: 'warning', found: 'This is a sharded cluster.' })
  expect(finding.meaning).toContain('mongos')
  expect(checkMembers({ msg: 'isdbgrid' }, denied)).toEqual([])
})

test.each([
  [['a', 'b'], [], 'warning', 'all of them'],
  [['a', 'b', 'c'], [], 'ok', 'at most 1'],
  [['a', 'b', 'c', 'd', 'e'], [], 'ok', 'at most 2'],
  [['a', 'b', 'c'], ['arbiter'], 'warning', '3 members with data must, so 0 of them'],
  [['a', 'b', 'c', 'd'], ['arbiter'], 'warning', '3 members with data must, so 1 of them'],
])('members %j with arbiters %j: %s, %s', (hosts, arbiters, severity, meaning) => {
  const [finding, ...others] = checkMembers({ setName: 'rs0', hosts, arbiters }, denied)
  expect(finding).toMatchObject({ id: 'mongodb/members', severity })
  expect(finding?.meaning).toContain(meaning)
  expect(others).toEqual([])
})
