import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import path from 'node:path'
import { inspect } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/cli/engines/connect.ts'
import type { LockEvent } from '../../src/events.ts'
import { createLocks } from '../../src/locks.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { telemetry } from '../otel/telemetry.ts'

const PLANTED = 'Pl4nted-Pa55word'
/** As it goes over the wire, too. */
const FORMS = [PLANTED, Buffer.from(PLANTED).toString('base64').replaceAll('=', '')]
const UUID = '4c0ffee0-5ec2-4e70-8a55-0123456789ab'

/** How each engine is given a password. */
const URLS: Readonly<Record<string, (at: string) => string>> = {
  redis: (at) => `redis://:${PLANTED}@${at}?requestTimeout=300ms`,
  'redis with a user': (at) => `redis://app:${PLANTED}@${at}?requestTimeout=300ms`,
  redlock: (at) =>
    `redis://app:${PLANTED}@${at},app:${PLANTED}@127.0.0.2:1,app:${PLANTED}@127.0.0.3:1?requestTimeout=300ms`,
  sentinel: (at) => `redis+sentinel://:${PLANTED}@${at}/main?sentinelPassword=${PLANTED}&requestTimeout=300ms`,
  cluster: (at) => `redis+cluster://:${PLANTED}@${at}?requestTimeout=300ms`,
  postgres: (at) => `postgres://app:${PLANTED}@${at}/postgres?requestTimeout=300ms`,
  mariadb: (at) => `mariadb://app:${PLANTED}@${at}/test?requestTimeout=300ms`,
  mongodb: (at) => `mongodb://app:${PLANTED}@${at}/app?requestTimeout=300ms&serverSelectionTimeoutMS=300`,
  etcd: (at) => `etcd://app:${PLANTED}@${at}?requestTimeout=300ms`,
  consul: (at) => `consul://${at}?token=${PLANTED}&requestTimeout=300ms`,
  'consul with a login': (at) => `consul://:${PLANTED}@${at}?requestTimeout=300ms`,
  zookeeper: (at) => `zookeeper://app:${PLANTED}@${at}?requestTimeout=300ms`,
}

/** All that a log could show of something that was thrown or told, however deep it goes. */
function everythingOf(value: unknown): string {
  const json = JSON.stringify(value, (_key, part: unknown) => (typeof part === 'bigint' ? String(part) : part))
  const stack = value instanceof Error ? value.stack : ''
  return [inspect(value, { depth: Infinity, maxArrayLength: null, maxStringLength: null }), json, stack].join('\n')
}

/** Does what a program does with an engine, and answers all that came of it but a lease. */
async function everythingSaidBy(url: string, observe?: (event: LockEvent) => void): Promise<string> {
  const heard: unknown[] = []
  const hear = (event: LockEvent): void => {
    heard.push(event)
    observe?.(event)
  }
  const { engine, url: shown, close } = await connect({ text: url, source: 'RINGFENCE_URL' })
  const locks = createLocks(engine, { observe: hear })
  const calls = [
    () => locks.tryAcquire('a'),
    () => locks.acquire(['a', 'b'], { wait: '400ms' }),
    async () => {
      for await (const lease of locks.inspect()) heard.push(lease)
    },
    () => locks.check(),
    () => locks.using('a', { wait: 0 }, () => undefined),
  ]
  const settled = await Promise.allSettled(calls.map(async (call): Promise<unknown> => call()))
  await locks.close()
  await engine.close?.()
  await close()
  const results = settled.map((one) => (one.status === 'rejected' ? (one.reason as unknown) : one.value))
  expect(settled.slice(0, 3).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  return [shown, inspect(locks, { depth: 3 }), ...[...results, ...heard].map(everythingOf)].join('\n')
}

function expectNoSecret(text: string, ...more: string[]): void {
  for (const secret of [...FORMS, ...more]) {
    const at = text.indexOf(secret)
    expect(at < 0 ? '' : text.slice(Math.max(0, at - 300), at + 60)).toBe('')
  }
}

describe('no password is told of a server that', () => {
  const servers: Server[] = []
  const sockets = new Set<Socket>()
  const ways: Readonly<Record<string, (socket: Socket) => void>> = {
    'says nothing': () => undefined,
    'closes every connection': (socket) => socket.end(),
    'repeats what it is sent': (socket) => void socket.on('data', (data) => socket.write(data)),
    'answers nonsense': (socket) => void socket.on('data', () => socket.write('-ERR nonsense\r\n\r\n')),
  }
  const at = new Map<string, string>([['is not there', '127.0.0.1:1']])
  beforeAll(async () => {
    for (const [name, way] of Object.entries(ways)) {
      const server = createServer((socket) => {
        sockets.add(socket.on('error', () => undefined).on('close', () => sockets.delete(socket)))
        way(socket)
      }).listen(0, '127.0.0.1')
      await once(server, 'listening')
      servers.push(server)
      at.set(name, `127.0.0.1:${(server.address() as AddressInfo).port}`)
    }
  })
  afterAll(() => {
    for (const socket of sockets) socket.destroy()
    for (const server of servers) server.close()
  })

  test.concurrent.each(['is not there', ...Object.keys(ways)])('%s', async (name) => {
    const said = await Promise.all(Object.values(URLS).map((url) => everythingSaidBy(url(at.get(name)!))))
    for (const text of said) expectNoSecret(text)
  })
})

describe('no password is told that is wrong:', () => {
  const refusal = /WRONGPASS|password|denied|authentication failed|ACL not found/i
  const told = async (engine: string, port: number, ...more: string[]): Promise<void> => {
    const measured = telemetry()
    const text = await everythingSaidBy(URLS[engine]!(`127.0.0.1:${port}`), measured.observe)
    const spans = measured.spans().map(({ attributes, events, status }) => ({ attributes, events, status }))
    expect(spans.length).toBeGreaterThan(0)
    expect(text).toMatch(refusal)
    expectNoSecret([text, everythingOf(spans), everythingOf(await measured.metrics())].join('\n'), ...more)
  }

  test.each(['redis', 'redis with a user', 'redlock', 'cluster', 'sentinel'])('%s', async (engine) => {
    await using server = await startRedis({ password: 'right' })
    await told(engine, server.port)
  })

  test('postgres', async () => {
    const folder = createFolder('hba')
    const file = path.join(folder, 'hba.conf')
    writeFileSync(file, 'host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n')
    await using server = await startPostgres({ settings: { hba_file: file } })
    await server.sql("CREATE ROLE app LOGIN PASSWORD 'right'")
    await told('postgres', server.port)
    removeFolder(folder)
  })

  test('mariadb', async () => {
    await using server = await startMariadb()
    await told('mariadb', server.port)
  })

  test('mongodb', async () => {
    await using server = await startMongodb({ auth: true })
    await told('mongodb', server.port)
  })

  test('etcd', async () => {
    await using server = await startEtcd()
    await server.call('auth/user/add', { name: 'root', password: 'right' })
    await server.call('auth/user/grant', { user: 'root', role: 'root' })
    await server.call('auth/enable', {})
    await told('etcd', server.port)
  })

  test('consul', async () => {
    await using server = await startConsul({
      hcl: `acl { enabled = true default_policy = "deny" tokens { master = "${UUID}" agent = "${UUID}" } }`,
      token: UUID,
    })
    await told('consul', server.port, UUID)
  })
})
