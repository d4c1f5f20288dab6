import { server } from '../../../harness/binaries.ts'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { endsLeasesEarly } from '../../../src/engines/etcd/doctor.ts'
import { etcd, type EtcdOptions } from '../../../src/engines/etcd/index.ts'
import type { Finding } from '../../../src/engine.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import {
  addEtcdLearner,
  startEtcd,
  startEtcdCluster,
  type EtcdCluster,
  type EtcdServer,
} from '../../../harness/servers/etcd.ts'
import { until } from '../../../harness/until.ts'
import { contents } from './setup.ts'

let one: EtcdServer
let three: EtcdCluster

beforeAll(async () => {
  ;[one, three] = await Promise.all([startEtcd(), startEtcdCluster()])
})

afterAll(() => Promise.all([one.stop(), three.stop()]))

async function check(urls: string | string[], ttlMs = 10_000, options: EtcdOptions = {}): Promise<readonly Finding[]> {
  const engine = etcd(urls, options)
  onTestFinished(() => engine.close())
  return engine.check(ttlMs)
}

function found(findings: readonly Finding[], id: string): Finding[] {
  return findings.filter((finding) => finding.id === id)
}

test('three members that answer are fit, and nothing is left behind by the check', async () => {
  const findings = await check(three.urls)
  expect(found(findings, 'etcd/members')).toMatchObject([
    { severity: 'ok', found: 'The cluster has 3 voting members.' },
  ])
  expect(found(findings, 'etcd/lease')).toMatchObject([{ severity: 'ok' }])
  expect(found(findings, 'etcd/round-trip')).toHaveLength(1)
  expect(found(findings, 'etcd/reachable').map(({ severity }) => severity)).toEqual(['ok', 'ok', 'ok'])
  expect(findings.filter(({ severity }) => severity === 'critical')).toEqual([])
  expect(await contents(three.nodes[0]!)).toEqual({ keys: [], leases: [] })
})

test('one member alone is a warning', async () => {
  expect(found(await check(one.url), 'etcd/members')).toMatchObject([
    { severity: 'warning', found: 'The cluster has 1 voting member.' },
  ])
})

test('a ttl below what the members keep is a note', async () => {
  await using slow = await startEtcd({ 'heartbeat-interval': '500', 'election-timeout': '5000' })
  expect(found(await check(slow.url, 5000), 'etcd/shortest-lease')).toMatchObject([
    { severity: 'note', found: 'The members keep every lease for at least 8 s; the ttl is 5000 ms.' },
  ])
  expect(found(await check(slow.url, 8000), 'etcd/shortest-lease')).toEqual([])
})

test('a version in which a stalled leader can end leases early is a warning', async () => {
  // The version that the tests run is one of them, if no other was asked for.
  const warnings = endsLeasesEarly(server('etcd').version) ? [{ severity: 'warning', node: one.url }] : []
  expect(found(await check(one.url), 'etcd/version')).toMatchObject(warnings)
  const early = ['3.3.27', '3.4.0', '3.4.30', '3.5.0', '3.5.12', '3.5.0-rc.1', '2.3.8']
  const late = ['3.4.31', '3.4.40', '3.5.13', '3.5.21', '3.6.0', '3.6.0-alpha.0', '4.0.0']
  expect([...early, ...late].filter(endsLeasesEarly)).toEqual(early)
})

test('members that are not among the endpoints, or do not answer, are named', async () => {
  const [first, second] = three.urls
  expect(found(await check([first!, second!]), 'etcd/endpoints')).toMatchObject([
    { severity: 'note', found: 'Of 3 members, 1 could not be asked: n2.' },
  ])
  const findings = await check([first!, 'http://127.0.0.1:9'])
  expect(found(findings, 'etcd/reachable').find(({ node }) => node === 'http://127.0.0.1:9')).toMatchObject({
    severity: 'warning',
    found: expect.stringContaining('ECONNREFUSED'),
  })
})

test('a server that does not answer is critical when it is the only one', async () => {
  expect(await check('http://127.0.0.1:9')).toMatchObject([
    { id: 'etcd/reachable', severity: 'critical', found: expect.stringContaining('ECONNREFUSED') },
  ])
})

test('endpoints of two clusters are critical', async () => {
  expect(found(await check([one.url, three.urls[0]!]), 'etcd/cluster')).toMatchObject([{ severity: 'critical' }])
})

test('a slow way to the server is found out', async () => {
  await using proxy = await startProxy(one.port)
  proxy.delay(60)
  const [finding] = found(
    await check(`http://127.0.0.1:${proxy.port}`, 10_000, { requestTimeout: 10_000 }),
    'etcd/round-trip',
  )
  const [, medianMs] = /takes ([\d.]+) ms \(median\)/.exec(finding!.found)!
  expect(Number(medianMs)).toBeGreaterThan(118)
})

test('the alarm of a full database is critical', async () => {
  const { header } = (await one.call('maintenance/status', {})) as { header: { member_id: string } }
  const alarm = { memberID: header.member_id, alarm: 'NOSPACE' }
  await one.call('maintenance/alarm', { action: 'ACTIVATE', ...alarm })
  const findings = await check(one.url)
  await one.call('maintenance/alarm', { action: 'DEACTIVATE', ...alarm })
  expect(found(findings, 'etcd/alarm')).toMatchObject([
    { severity: 'critical', found: 'The alarm NOSPACE is raised.', remedy: expect.stringContaining('disarm') },
  ])
  expect(found(findings, 'etcd/lease')).toMatchObject([
    { severity: 'critical', found: expect.stringContaining('space exceeded') },
  ])
})

test('a learner among the endpoints is a warning, and locks work around it', async () => {
  await using learner = await addEtcdLearner(three)
  const findings = await check([learner.url, ...three.urls])
  expect(found(findings, 'etcd/learner')).toMatchObject([{ severity: 'warning', node: learner.url }])
  expect(found(findings, 'etcd/lease')).toMatchObject([{ severity: 'ok' }])
  expect(found(findings, 'etcd/members')).toMatchObject([
    { severity: 'ok', found: 'The cluster has 3 voting members.' },
  ])
})

test('a member without a leader is critical', async () => {
  const [survivor, ...others] = three.nodes
  await Promise.all(others.map((node) => node.kill()))
  const leaderless = async (): Promise<Finding | undefined> => found(await check(survivor!.url), 'etcd/leader')[0]
  const finding = await until(leaderless, { what: 'the finding', withinMs: 20_000 })
  expect(finding).toMatchObject({ severity: 'critical', node: survivor!.url, found: 'The member knows no leader.' })
})
