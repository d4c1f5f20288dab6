import { expect, test } from 'vitest'
import { startCluster } from '../../harness/servers/redis-cluster.ts'
import { startSentinel } from '../../harness/servers/sentinel.ts'

test('sentinel promotes a replica that never got the last write', async () => {
  await using setup = await startSentinel()
  const old = await setup.primary()
  await old.cli('SET', 'before', '1')
  await old.cli('WAIT', '2', '5000')
  await setup.cutReplication()
  await old.cli('SET', 'after', '1')
  expect(await setup.killPrimary()).toBe(old)
  const promoted = await setup.newPrimary(old)
  expect(await promoted.cli('GET', 'before')).toBe('1')
  expect(await promoted.cli('GET', 'after')).toBe('')
  expect(await setup.primary()).toBe(promoted)
  expect(await setup.replicas()).toHaveLength(1)
}, 30_000)

test('a healed replication carries writes again', async () => {
  await using setup = await startSentinel()
  const primary = await setup.primary()
  await setup.cutReplication()
  await setup.healReplication()
  await primary.cli('SET', 'a', '1')
  expect(Number(await primary.cli('WAIT', '2', '5000'))).toBe(2)
}, 30_000)

test('a cluster of three masters redirects to the owner of a key', async () => {
  await using cluster = await startCluster()
  const [first] = cluster.nodes
  expect(await first?.cli('-c', 'SET', 'foo', '1')).toBe('OK')
  expect(await first?.cli('-c', 'SET', 'bar', '1')).toBe('OK')
  expect(cluster.nodes).toHaveLength(3)
}, 30_000)
