import { expect, test } from 'vitest'
import { startConsul, startConsulCluster } from '../../harness/servers/consul.ts'
import { startEtcd, startEtcdCluster } from '../../harness/servers/etcd.ts'
import { startZookeeper, startZookeeperEnsemble } from '../../harness/servers/zookeeper.ts'
import { until } from '../../harness/until.ts'

const base64 = (text: string): string => Buffer.from(text).toString('base64')

test.concurrent('etcd keeps its keys across a crash and loses them when restarted empty', async () => {
  await using server = await startEtcd()
  await server.call('kv/put', { key: base64('a'), value: base64('1') })
  await server.kill()
  await server.restart()
  expect(await server.call('kv/range', { key: base64('a') })).toMatchObject({ count: '1' })
  await server.restart({ empty: true })
  expect(await server.call('kv/range', { key: base64('a') })).not.toHaveProperty('count')
})

test.concurrent('an etcd cluster elects another leader when its leader freezes', async () => {
  await using cluster = await startEtcdCluster()
  const old = await cluster.leader()
  await old.freeze()
  const next = await until(async () => notThis(old, await cluster.leader()), { what: 'a new leader' })
  await until(() => next.call('kv/put', { key: base64('a'), value: base64('1') }), { what: 'a write' })
  await old.thaw()
  const found = await until(() => old.call('kv/range', { key: base64('a') }), { what: 'a read' })
  expect(found).toMatchObject({ count: '1' })
})

test.concurrent('consul keeps its keys across a crash and loses them when restarted empty', async () => {
  await using server = await startConsul()
  expect(await server.call('PUT', 'kv/a', '1')).toBe(true)
  expect(await server.call('PUT', 'session/create', '{"TTL":"1s"}')).toHaveProperty('ID')
  await server.kill()
  await server.restart()
  expect(await server.call('GET', 'kv/a')).toMatchObject([{ Key: 'a' }])
  await server.restart({ empty: true })
  await expect(server.call('GET', 'kv/a')).rejects.toThrow('404')
})

test.concurrent('a consul cluster elects another leader when its leader is killed', async () => {
  await using cluster = await startConsulCluster()
  const old = await cluster.leader()
  await old.kill()
  const next = await until(async () => notThis(old, await cluster.leader()), { what: 'a new leader' })
  await until(() => next.call('PUT', 'kv/a', '1'), { what: 'a write' })
  await old.restart()
  const found = await until(() => old.call('GET', 'kv/a'), { what: 'a read' })
  expect(found).toMatchObject([{ Key: 'a' }])
})

test.concurrent('zookeeper answers again after freezing, after a crash and without its data', async () => {
  await using server = await startZookeeper()
  expect(await server.mode()).toBe('standalone')
  await server.freeze()
  const waiting = server.command('ruok')
  await server.thaw()
  expect(await waiting).toBe('imok')
  await server.kill()
  await server.restart()
  await server.restart({ empty: true })
  expect(await server.command('ruok')).toBe('imok')
})

test.concurrent('a zookeeper ensemble elects another leader when its leader is killed', async () => {
  await using ensemble = await startZookeeperEnsemble()
  const old = await ensemble.leader()
  await old.kill()
  const next = await until(async () => notThis(old, await ensemble.leader()), { what: 'a new leader' })
  expect(next).not.toBe(old)
  await old.restart()
  expect(await old.mode()).toBe('follower')
})

function notThis<T>(old: T, found: T): T | undefined {
  return found === old ? undefined : found
}
