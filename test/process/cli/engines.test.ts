import { afterAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { createCertificates, type Certificates } from '../../support/certificates.ts'
import { Home } from '../../support/command.ts'
import { onFreePorts } from '../../support/ports.ts'
import { startConsul, startSecureConsul } from '../../support/servers/consul.ts'
import { startEtcd, startSecureEtcd } from '../../support/servers/etcd.ts'
import { startMariadb } from '../../support/servers/mariadb.ts'
import { startMongodb } from '../../support/servers/mongodb.ts'
import { startPostgres } from '../../support/servers/postgres.ts'
import { startRedis } from '../../support/servers/redis.ts'
import { startZookeeper } from '../../support/servers/zookeeper.ts'

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

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

describe.each(ENGINES)('%s', (_name, start, urlOf) => {
  test('is reached by its URL: init, run, status and doctor work, and nobody is let in twice', async () => {
    await using server = await start()
    const options = { env: { RINGFENCE_URL: urlOf(server) } }
    expect(await home.run(['init'], options)).toMatchObject({ code: 0, stderr: '' })
    const show = 'echo "token $RINGFENCE_TOKEN"; read -r _; exit 3'
    const holder = home.start(['run', '--label', 'alice', 'job', '--', 'sh', '-c', show], options)
    const token = BigInt(await holder.printed(/token (\d+)\n/))
    expect(await home.run(['run', '--no-wait', 'job', '--', 'true'], options)).toMatchObject({ code: EXIT.held })
    const { leases } = JSON.parse((await home.run(['status', 'job', '--json'], options)).stdout) as { leases: object[] }
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

function echoed(RINGFENCE_URL: string): ReturnType<Home['run']> {
  return home.run(['run', '--no-wait', 'job', '--', 'echo', 'in'], { env: { RINGFENCE_URL } })
}

test('rediss:// trusts the authority that it names and no other, and does not print the password', async () => {
  using certificates = createCertificates()
  const file = (name: string): string => `${certificates.folder}/${name}`
  const tls = ['--tls-cert-file', file('server.pem'), '--tls-key-file', file('server-key.pem')]
  await using server = await onFreePorts(1, async ([port = 0]) => {
    const args = ['--tls-port', String(port), ...tls, '--tls-ca-cert-file', file('ca.pem'), '--tls-auth-clients', 'no']
    const redis = await startRedis({ password: 'hush', args })
    return { tlsPort: port, [Symbol.asyncDispose]: () => redis.stop() }
  })
  const url = `rediss://:hush@127.0.0.1:${server.tlsPort}`
  expect(await echoed(`${url}?ca=${file('ca.pem')}`)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
  for (const stranger of [url, `${url}?ca=${file('other-ca.pem')}`]) {
    const { code, stdout, stderr } = await echoed(stranger)
    expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
    expect(stderr).toContain('certificate')
    expect(stderr).not.toContain('hush')
  }
})

test.each([
  [
    'etcds',
    async (certificates: Certificates) => {
      const server = await startSecureEtcd(certificates)
      return { port: server.port, stop: () => server.stop() }
    },
  ],
  [
    'consuls',
    async (certificates: Certificates) => {
      const { server, url } = await startSecureConsul(certificates)
      return { port: Number(new URL(url).port), stop: () => server.stop() }
    },
  ],
])('%s:// trusts the authority that it names and shows its own certificate', async (scheme, start) => {
  using certificates = createCertificates()
  const file = (name: string): string => `${certificates.folder}/${name}`
  const { port, stop } = await start(certificates)
  await using _stopped = { [Symbol.asyncDispose]: stop }
  const shown = `cert=${file('client.pem')}&key=${file('client-key.pem')}`
  const url = `${scheme}://127.0.0.1:${port}`
  expect(await echoed(`${url}?ca=${file('ca.pem')}&${shown}`)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
  for (const parameters of [shown, `ca=${file('other-ca.pem')}&${shown}`, `ca=${file('ca.pem')}`]) {
    const { code, stdout, stderr } = await echoed(`${url}?${parameters}`)
    expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
    expect(stderr).toMatch(/certificate|ECONNRESET|socket hang up/)
  }
  expect(await echoed(`${url}?ca=${file('nowhere.pem')}`)).toMatchObject({
    code: EXIT.usage,
    stderr: expect.stringContaining('nowhere.pem') as string,
  })
})

test.each([
  'redis://127.0.0.1:1',
  'redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3',
  'postgres://postgres@127.0.0.1:1/postgres',
  'mariadb://root@127.0.0.1:1/test',
  'mongodb://127.0.0.1:1/app',
  'etcd://127.0.0.1:1',
  'consul://127.0.0.1:1',
  'zookeeper://127.0.0.1:1',
])('%s, where nobody is, is told by its exit code, in time', async (url) => {
  const began = performance.now()
  expect(await home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: url } })).toMatchObject({
    code: EXIT.engine,
    stderr: expect.stringContaining("can't be used: ") as string,
  })
  expect(performance.now() - began).toBeLessThan(40_000)
})
