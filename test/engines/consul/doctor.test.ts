import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ConsulOptions } from '../../../src/engines/consul/index.ts'
import type { Finding } from '../../../src/engine.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import {
  startConsul,
  startConsulCluster,
  type ConsulCluster,
  type ConsulServer,
} from '../../../harness/servers/consul.ts'
import { until } from '../../../harness/until.ts'
import { open, contents } from './setup.ts'

let one: ConsulServer
let three: ConsulCluster

beforeAll(async () => {
  ;[one, three] = await Promise.all([startConsul(), startConsulCluster()])
})

afterAll(() => Promise.all([one.stop(), three.stop()]))

function check(urls: string | string[], ttlMs = 10_000, options: ConsulOptions = {}): Promise<readonly Finding[]> {
  return open(urls, options).check(ttlMs)
}

function found(findings: readonly Finding[], id: string): Finding[] {
  return findings.filter((finding) => finding.id === id)
}

test('three servers that answer are fit, and nothing is left behind by the check', async () => {
  const findings = await check(three.urls)
  expect(found(findings, 'consul/servers')).toMatchObject([{ severity: 'ok', found: 'The cluster has 3 servers.' }])
  expect(found(findings, 'consul/lease')).toMatchObject([{ severity: 'ok' }])
  expect(found(findings, 'consul/round-trip')).toHaveLength(1)
  expect(found(findings, 'consul/reachable').map(({ severity }) => severity)).toEqual(['ok', 'ok', 'ok'])
  expect(findings.filter(({ severity }) => severity === 'critical')).toEqual([])
  expect(await contents(three.nodes[0]!)).toEqual({ keys: [], sessions: [] })
})

test('one server alone is a warning', async () => {
  expect(found(await check(one.url), 'consul/servers')).toMatchObject([
    { severity: 'warning', found: 'The cluster has 1 server.' },
  ])
})

test('a lock-delay shorter than the ttl is a note', async () => {
  expect(found(await check(one.url, 10_000, { lockDelay: '2s' }), 'consul/lock-delay')).toMatchObject([
    { severity: 'note', found: 'The lock-delay is 2000 ms, less than the ttl of 10000 ms.' },
  ])
  expect(found(await check(one.url), 'consul/lock-delay')).toEqual([])
  expect(found(await check(one.url, 120_000), 'consul/lock-delay')).toMatchObject([{ severity: 'note' }])
})

test('a server that does not answer is critical when it is the only one', async () => {
  expect(await check('http://127.0.0.1:9')).toMatchObject([
    { id: 'consul/reachable', severity: 'critical', found: expect.stringContaining('ECONNREFUSED') },
  ])
  const findings = await check([one.url, 'http://127.0.0.1:9'])
  expect(found(findings, 'consul/reachable').find(({ node }) => node !== one.url)).toMatchObject({
    severity: 'warning',
  })
})

test('agents of two clusters are critical', async () => {
  expect(found(await check([one.url, three.urls[0]!]), 'consul/cluster')).toMatchObject([{ severity: 'critical' }])
})

test('a slow way to the server is found out', async () => {
  await using proxy = await startProxy(one.port)
  proxy.delay(60)
  const [finding] = found(
    await check(`http://127.0.0.1:${proxy.port}`, 10_000, { requestTimeout: 10_000 }),
    'consul/round-trip',
  )
  const [, medianMs] = /takes ([\d.]+) ms \(median\)/.exec(finding!.found)!
  expect(Number(medianMs)).toBeGreaterThan(118)
})

test('a server that is gone is reported by the others', async () => {
  const gone = three.nodes.find((node) => node !== three.nodes[0])!
  await gone.kill()
  const [finding] = await until(
    async () => {
      const findings = found(await check(three.nodes[0]!.url), 'consul/health')
      return findings.length > 0 && findings[0]!.severity === 'warning' ? findings : undefined
    },
    { what: 'the finding', withinMs: 40_000, everyMs: 200 },
  )
  expect(finding).toMatchObject({ node: gone.name, found: expect.stringContaining('unhealthy') })
})
