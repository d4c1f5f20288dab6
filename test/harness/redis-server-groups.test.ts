import { expect, test } from 'vitest'
import { startCluster } from '../../harness/servers/redis-cluster.ts'
import { startSentinel, type SentinelSetup } from '../../harness/servers/sentinel.ts'
import { until } from '../../harness/until.ts'

/** A WAIT of another connection than that of the write would not wait for it. */
async function replicated(setup: SentinelSetup, key: string): Promise<void> {
  for (const replica of await setup.replicas())
    await until(async () => (await replica.cli('GET', key)) === '1', { what: `a replica has ${key}`, withinMs: 20_000 })
}

test.concurrent('sentinel promotes a replica that never got the last write', async () => {
  await using setup = await startSentinel()
  const old = await setup.primary()
  await old.cli('SET', 'before', '1')
  await replicated(setup, 'before')
  await setup.cutReplication()
  await old.cli('SET', 'after', '1')
  expect(await setup.killPrimary()).toBe(old)
  const promoted = await setup.newPrimary(old)
  expect(await promoted.cli('GET', 'before')).toBe('1')
  expect(await promoted.cli('GET', 'after')).toBe('')
  expect(await setup.primary()).toBe(promoted)
  expect(await setup.replicas()).toHaveLength(1)
})

test.concurrent('a healed replication carries writes again', async () => {
  await using setup = await startSentinel()
  const primary = await setup.primary()
  await setup.cutReplication()
  await setup.healReplication()
  await primary.cli('SET', 'a', '1')
  await replicated(setup, 'a')
  expect(await setup.replicas()).toHaveLength(2)
})

test.concurrent('a cluster of three masters redirects to the owner of a key', async () => {
  await using cluster = await startCluster()
  const [first] = cluster.nodes
  expect(await first?.cli('-c', 'SET', 'foo', '1')).toBe('OK')
  expect(await first?.cli('-c', 'SET', 'bar', '1')).toBe('OK')
  expect(cluster.nodes).toHaveLength(3)
})
