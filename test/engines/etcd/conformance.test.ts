import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance/index.ts'
import { etcd } from '../../../src/engines/etcd/index.ts'
import type { Group } from '../../../harness/group.ts'
import { startEtcd, startEtcdCluster, type EtcdServer } from '../../../harness/servers/etcd.ts'

let one: EtcdServer
let three: Group<EtcdServer> & { urls: string[] }

beforeAll(async () => {
  ;[one, three] = await Promise.all([startEtcd(), startEtcdCluster()])
})

afterAll(() => Promise.all([one.stop(), three.stop()]))

const methods = ['adopt', 'enqueue', 'probe'] as const
// etcd counts leases in whole seconds.
const shortTtlMs = 1000
const setup = { methods, shared: true, shortTtlMs }

describe.concurrent('etcd, one member', () => {
  for (const { name, run } of conformance({ engine: () => etcd(one.url), ...setup })) test(name, run)
})

describe.concurrent('etcd, three members', () => {
  for (const { name, run } of conformance({ engine: () => etcd(three.urls), ...setup })) test(name, run)
})
