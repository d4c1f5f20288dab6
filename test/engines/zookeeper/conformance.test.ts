import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import {
  startZookeeper,
  startZookeeperEnsemble,
  type ZookeeperEnsemble,
  type ZookeeperServer,
} from '../../../harness/servers/zookeeper.ts'

let one: ZookeeperServer
let three: ZookeeperEnsemble

beforeAll(async () => {
  ;[one, three] = await Promise.all([startZookeeper(), startZookeeperEnsemble()])
})

afterAll(() => Promise.all([one.stop(), three.stop()]))

const setup = { methods: ['enqueue', 'leave', 'probe', 'init'] as const, shared: true, shortTtlMs: 600 }
const open = (servers: string): Engine => zookeeper(driver, servers, { maxTtl: '30s' })

describe.concurrent('zookeeper, one server', () => {
  for (const { name, run } of conformance({ engine: () => open(`127.0.0.1:${one.port}`), ...setup })) test(name, run)
})

describe.concurrent('zookeeper, three servers', () => {
  for (const { name, run } of conformance({ engine: () => open(three.connectString), ...setup })) test(name, run)
})
