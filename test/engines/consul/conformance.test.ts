import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance/index.ts'
import { consul } from '../../../src/engines/consul/index.ts'
import {
  startConsul,
  startConsulCluster,
  type ConsulCluster,
  type ConsulServer,
} from '../../../harness/servers/consul.ts'

let one: ConsulServer
let three: ConsulCluster

beforeAll(async () => {
  ;[one, three] = await Promise.all([startConsul(), startConsulCluster()])
})

afterAll(() => Promise.all([one.stop(), three.stop()]))

// The servers of the tests keep sessions from a second on; by default it is ten.
const sessionTtlMin = 1000
const shortTtlMs = 1000
const methods = ['adopt', 'watch', 'probe'] as const

describe.concurrent('consul, one server', () => {
  const setup = { engine: () => consul(one.url, { sessionTtlMin }), methods, shortTtlMs }
  for (const { name, run } of conformance(setup)) test(name, run)
})

describe.concurrent('consul, three servers', () => {
  const setup = { engine: () => consul(three.urls, { sessionTtlMin }), methods, shortTtlMs }
  for (const { name, run } of conformance(setup)) test(name, run)
})
