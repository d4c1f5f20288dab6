import { createServer, type AddressInfo } from 'node:net'
import { afterAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { createCertificates, type Certificates } from '../../../harness/certificates.ts'
import { Home } from '../../../harness/command.ts'
import { onFreePorts } from '../../../harness/ports.ts'
import { startConsul, startSecureConsul } from '../../../harness/servers/consul.ts'
import { startEtcd, startSecureEtcd } from '../../../harness/servers/etcd.ts'
import { startMariadb } from '../../../harness/servers/mariadb.ts'
import { startMongodb } from '../../../harness/servers/mongodb.ts'
import { startPostgres } from '../../../harness/servers/postgres.ts'
import { startRedis, startRedisNodes, tlsArgs } from '../../../harness/servers/redis.ts'
import { startZookeeper } from '../../../harness/servers/zookeeper.ts'

interface Server extends AsyncDisposable {
  readonly port: number
  readonly url: string
}

/** How a server of the tests is named by an URL of the command. */
const ENGINES: readonly (readonly [name: string, start: () => Promise<Server>, url: (server: Server) => string])[] = [
  ['redis', () => startRedis(), ({ url }) => url],
  ['valkey', () => startRedis({ valkey: true }), ({ port }) => `valkey://127.0.0.1:${port}`],
  ['postgres', () => startPostgres(), ({ url }) => `${url}?table=leases&sslmode=disable`],
  ['mariadb', () => startMariadb(), ({ url }) => url],
  ['mongodb', () => startMongodb(), ({ url }) => url.replace('/?', '/app?collection=leases&')],
  ['etcd', () => startEtcd(), ({ port }) => `etcd://127.0.0.1:${port}`],
  ['consul', () => startConsul(), ({ port }) => `consul://127.0.0.1:${port}?sessionTtlMin=1s`],
  ['zookeeper', () => startZookeeper(), ({ port }) => `zookeeper://127.0.0.1:${port}`],
]

// Each test has servers and an address of its own, and waits for them most of the time: they run side by side.
const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

describe.concurrent.each(ENGINES)('%s', (name, start, urlOf) => {
  test('is reached by its URL: init, run, status and doctor work, and nobody is let in twice', async () => {
    await using server = await start()
    const url = new URL(urlOf(server))
    // A busy machine may keep a healthy server waiting. The URL of MongoDB is the driver's, which has no such parameter.
    if (name !== 'mongodb') url.searchParams.set('requestTimeout', '10s')
    const options = { env: { RINGFENCE_URL: url.href } }
    expect(await home.run(['init'], options)).toMatchObject({ code: 0, stderr: '' })
    const show = 'echo "token $RINGFENCE_TOKEN"; read -r _; exit 3'
    const holder = home.start(['run', '--label', 'alice', 'job', '--', 'sh', '-c', show], options)
    const token = BigInt(await holder.printed(/token (\d+)\n/))
    expect(await home.run(['run', '--no-wait', 'job', '--', 'true'], options)).toMatchObject({ code: EXIT.held })
    const status = await home.run(['status', 'job', '--json'], options)
    expect(status).toMatchObject({ code: 0, stderr: '' })
    const { leases } = JSON.parse(status.stdout) as { leases: object[] }
    expect(leases).toMatchObject([{ resource: 'job', token: String(token), owner: expect.stringContaining('@alice') }])
    holder.type('\n')
    expect(await holder.ended).toMatchObject({ code: 3, stderr: '' })
    const next = await home.run(['run', 'job', '--', 'sh', '-c', 'echo "$RINGFENCE_TOKEN"'], options)
    expect(next).toMatchObject({ code: 0, stderr: '' })
    expect(BigInt(next.stdout)).toBeGreaterThan(token)
    const doctor = JSON.parse((await home.run(['doctor', '--json'], options)).stdout) as { findings: unknown[] }
    expect(doctor.findings.length).toBeGreaterThan(0)
  })
})

function quorumOf(nodes: readonly { readonly port: number }[]): string {
  return `redis://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
}

test.concurrent('status of a quorum without a majority says that it can not know, and not that nothing is held', async () => {
  await using quorum = await startRedisNodes(5)
  const env = { RINGFENCE_URL: quorumOf(quorum.nodes) }
  const holder = home.start(['run', 'job', '--', 'sh', '-c', 'echo ready; read -r _'], { env })
  await holder.printed(/ready/)
  const majority = quorum.nodes.slice(0, 3)
  await Promise.all(majority.map((node) => node.freeze()))
  // Of three nodes of which none answers, it is said when the time to connect is over. Of five that is not waited for.
  let isBlindOver = false
  const blind = home.run(['status'], { env: { RINGFENCE_URL: quorumOf(majority) } }).finally(() => (isBlindOver = true))
  const outcomes = await Promise.all(
    [['status'], ['status', '--json'], ['status', 'job']].map((args) => home.run(args, { env })),
  )
  expect(isBlindOver).toBe(false)
  expect(await blind).toMatchObject({ code: EXIT.engine, stderr: expect.stringContaining('2 of 3 nodes needed') })
  for (const { code, stdout, stderr } of outcomes) {
    expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
    expect(stderr).toContain('3 of 5 nodes needed')
  }
  await Promise.all(majority.map((node) => node.thaw()))
  expect(await home.run(['status'], { env })).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('job') as string,
  })
  holder.type('\n')
  expect(await holder.ended).toMatchObject({ code: 0 })
})

function echoed(RINGFENCE_URL: string): ReturnType<Home['run']> {
  return home.run(['run', '--no-wait', 'job', '--', 'echo', 'in'], { env: { RINGFENCE_URL } })
}

test.concurrent('rediss:// trusts the authority that it names, no other, no other host and no plain text, and does not print the password', async () => {
  using certificates = createCertificates()
  const file = (name: string): string => `${certificates.folder}/${name}`
  await using server = await onFreePorts(1, async ([port = 0]) => {
    const redis = await startRedis({ password: 'hush', args: tlsArgs(port, certificates) })
    return { tlsPort: port, port: redis.port, [Symbol.asyncDispose]: () => redis.stop() }
  })
  const url = `rediss://:hush@127.0.0.1:${server.tlsPort}`
  expect(await echoed(`${url}?ca=${file('ca.pem')}`)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
  const refused = [
    [url, 'certificate'],
    [`${url}?ca=${file('other-ca.pem')}`, 'certificate'],
    // The certificate is for the address.
    [`${url.replace('127.0.0.1', 'localhost')}?ca=${file('ca.pem')}`, 'Hostname/IP does not match'],
    [`rediss://:hush@127.0.0.1:${server.port}?ca=${file('ca.pem')}`, ''],
  ] as const
  const outcomes = await Promise.all(refused.map(async ([stranger, why]) => ({ ...(await echoed(stranger)), why })))
  for (const { code, stdout, stderr, why } of outcomes) {
    expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
    expect(stderr).toContain(why)
    expect(stderr).not.toContain('hush')
  }
})

test.concurrent.each([
  [
    'etcds',
    async (certificates: Certificates) => {
      const [server, plain] = await Promise.all([startSecureEtcd(certificates), startEtcd()])
      const stop = async (): Promise<unknown> => Promise.all([server.stop(), plain.stop()])
      return { port: server.port, plainPort: plain.port, stop }
    },
  ],
  [
    'consuls',
    async (certificates: Certificates) => {
      const { server, url } = await startSecureConsul(certificates)
      return { port: Number(new URL(url).port), plainPort: server.port, stop: () => server.stop() }
    },
  ],
])(
  '%s:// trusts the authority that it names, no other host and no plain text, and shows its own certificate',
  async (scheme, start) => {
    using certificates = createCertificates()
    const file = (name: string): string => `${certificates.folder}/${name}`
    const { port, plainPort, stop } = await start(certificates)
    await using _stopped = { [Symbol.asyncDispose]: async () => void (await stop()) }
    const shown = `cert=${file('client.pem')}&key=${file('client-key.pem')}`
    const url = `${scheme}://127.0.0.1:${port}`
    expect(await echoed(`${url}?ca=${file('ca.pem')}&${shown}`)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
    const closed = /certificate|ECONNRESET|socket hang up/
    const refused = [
      [`${url}?${shown}`, closed],
      [`${url}?ca=${file('other-ca.pem')}&${shown}`, closed],
      [`${url}?ca=${file('ca.pem')}`, closed],
      // The certificate is for the address.
      [`${scheme}://localhost:${port}?ca=${file('ca.pem')}&${shown}`, /Hostname\/IP does not match/],
      [`${scheme}://127.0.0.1:${plainPort}?ca=${file('ca.pem')}&${shown}`, /SSL|TLS|EPROTO|ECONNRESET|socket hang up/],
    ] as const
    for (const [stranger, why] of refused) {
      const { code, stdout, stderr } = await echoed(stranger)
      expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
      expect(stderr).toMatch(why)
    }
    expect(await echoed(`${url}?ca=${file('nowhere.pem')}`)).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining('nowhere.pem') as string,
    })
  },
)

test.concurrent('a PostgreSQL that accepts connections and is silent does not hold the command up', async () => {
  const silent = createServer()
  await new Promise<void>((resolve) => void silent.listen(0, '127.0.0.1', resolve))
  const { port } = silent.address() as AddressInfo
  expect(await echoed(`postgres://u@127.0.0.1:${port}/x`)).toMatchObject({
    code: EXIT.engine,
    stderr: expect.stringContaining('no answer within 3000 ms') as string,
  })
  silent.close()
})

test.concurrent.each([
  'redis://127.0.0.1:1',
  'redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3',
  'postgres://postgres@127.0.0.1:1/postgres',
  'mariadb://root@127.0.0.1:1/test',
  'mongodb://127.0.0.1:1/app',
  'mongodb://127.0.0.1:1/app?requestTimeout=10s',
  'etcd://127.0.0.1:1',
  'consul://127.0.0.1:1',
  'zookeeper://127.0.0.1:1',
])('%s, where nobody is, is told by its exit code, in time', async (url) => {
  const began = performance.now()
  expect(await home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: url } })).toMatchObject({
    code: EXIT.engine,
    stderr: expect.stringContaining('cannot be used: ') as string,
  })
  expect(performance.now() - began).toBeLessThan(40_000)
})
