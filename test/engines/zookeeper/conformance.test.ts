import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance/index.ts'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import { startZookeeper, type ZookeeperServer } from '../../../harness/servers/zookeeper.ts'

let server: ZookeeperServer

beforeAll(async () => {
  server = await startZookeeper()
})

afterAll(() => server.stop())

describe.concurrent('zookeeper', () => {
  const setup = {
    engine: () => zookeeper(driver, `127.0.0.1:${server.port}`, { maxTtl: '30s' }),
    methods: ['enqueue', 'leave', 'init'] as const,
    shared: true,
    shortTtlMs: 600,
  }
  for (const { name, run } of conformance(setup)) test(name, run)
})
