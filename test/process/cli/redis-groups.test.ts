import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { ioredisDriver, nodeRedisDriver, type OpenClient } from '../../../src/cli/engines/redis-drivers.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/index.ts'
import { Viewer } from '../../dashboard/viewer.ts'
import { createCertificates, type Certificates } from '../../../harness/certificates.ts'
import { Home, type Ended } from '../../../harness/command.ts'
import { startGroup } from '../../../harness/group.ts'
import { onFreePorts } from '../../../harness/ports.ts'
import { startRedis, startRedisNodes, tlsArgs, type RedisServer } from '../../../harness/servers/redis.ts'
import { startCluster } from '../../../harness/servers/redis-cluster.ts'
import { startSecureSentinel, startSentinel, type SentinelSetup } from '../../../harness/servers/sentinel.ts'
import { until } from '../../../harness/until.ts'

const PASSWORD = 'hush:1'
const SENTINEL_PASSWORD = 'whisper2'
/** Ten commands, one after the other: each takes seconds where the machine does much else. */
const MANY_STARTS = { timeout: 120_000 }
const WAITS = ['sh', '-c', 'echo "token $RINGFENCE_TOKEN"; read -r _']

const home = new Home()
let certificates: Certificates
let sentinels: SentinelSetup
let secure: Awaited<ReturnType<typeof startSecureSentinel>>
let cluster: Awaited<ReturnType<typeof startCluster>>
let plain: RedisServer

beforeAll(async () => {
  certificates = createCertificates()
  const logins = { password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD }
  ;[sentinels, secure, cluster, plain] = await Promise.all([
    startSentinel(),
    startSecureSentinel(certificates, logins),
    startCluster({ password: PASSWORD, certificates }),
    startRedis(),
  ])
})

afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await Promise.all([sentinels.stop(), secure[Symbol.asyncDispose](), cluster.stop(), plain.stop()])
  certificates[Symbol.dispose]()
})

const encoded = encodeURIComponent(PASSWORD)
const hosts = (ports: readonly number[]): string => ports.map((port) => `127.0.0.1:${port}`).join(',')
const sentinelUrl = (): string =>
  `redis+sentinel://${hosts(sentinels.sentinels.map(({ port }) => port))}/${sentinels.name}?requestTimeout=10s`
const clusterUrl = (): string =>
  `redis+cluster://:${encoded}@${hosts(cluster.nodes.map(({ port }) => port))}?requestTimeout=10s`
const secureSentinelUrl = (): string =>
  `rediss+sentinel://:${encoded}@127.0.0.1:${secure.tlsPort}/${secure.name}/0?sentinelPassword=${SENTINEL_PASSWORD}&requestTimeout=10s`
const secureClusterUrl = (): string => `rediss+cluster://:${encoded}@${hosts(cluster.tlsPorts)}?requestTimeout=10s`
const at = (port: number): { host: string; port: number } => ({ host: '127.0.0.1', port })
const ca = (name = 'ca.pem'): string => `&ca=${certificates.folder}/${name}`

function run(RINGFENCE_URL: string, ...args: string[]): Promise<Ended> {
  return home.run(args, { env: { RINGFENCE_URL } })
}

/** Every verb that asks servers, but `runs`: a lease that is seen, refused to others and ended by force, a leader, what the doctor and the dashboard say. */
async function tryAllVerbs(url: string, secrets = [PASSWORD, encoded, SENTINEL_PASSWORD]): Promise<void> {
  const env = { RINGFENCE_URL: url }
  expect(await run(url, 'init')).toMatchObject({ code: 0, stderr: '' })
  const holder = home.start(['run', '--label', 'ada', '--ttl', '6s', 'job', '--', ...WAITS], { env })
  const token = await holder.printed(/token (\d+)\n/)
  expect(await run(url, 'run', '--no-wait', 'job', '--', 'true')).toMatchObject({ code: EXIT.held })
  const status = await run(url, 'status', 'job', '--json')
  expect(JSON.parse(status.stdout)).toMatchObject({ leases: [{ resource: 'job', token }] })
  const doctor = await run(url, 'doctor', '--json')
  const { findings } = JSON.parse(doctor.stdout) as { findings: unknown[] }
  expect(findings.length).toBeGreaterThan(0)
  const dashboard = home.start(['dashboard', '--listen', '0'], { env })
  const at = await dashboard.printed(/is at (http:\/\/127\.0\.0\.1:\d+\/)\n/)
  const viewer = new Viewer(await fetch(`${at}events`))
  expect(await viewer.sees('job', ({ label }) => label === 'ada')).toMatchObject({ token })
  expect(await run(url, 'release', '--force', '--yes', 'job')).toMatchObject({ code: 0 })
  expect(await holder.ended).toMatchObject({ code: EXIT.lost })
  await viewer.misses('job')
  expect(await run(url, 'elect', 'job', '--', 'echo', 'leads')).toMatchObject({ code: 0, stdout: 'leads\n' })
  const bench = await run(url, 'bench', '--count', '10', '--for', '500ms', '--json')
  expect(bench).toMatchObject({ code: 0, stderr: '' })
  dashboard.signal('SIGTERM')
  expect(await dashboard.ended).toMatchObject({ code: 0 })
  for (const { stdout, stderr } of [status, doctor, holder, dashboard, bench])
    for (const secret of secrets) expect(stdout + stderr).not.toContain(secret)
}

test.concurrent(
  'a quorum with TLS and a login for each node by URL: run, elect, status, doctor, bench, release and the dashboard work',
  MANY_STARTS,
  async () => {
    const passwords = ['hush-a', 'hush-b', 'hush-c']
    await using quorum = await onFreePorts(3, async (ports) => {
      const { stop } = await startGroup(
        ports.map((port, index) => () => {
          const acl = [`u${index} on >${passwords[index]} ~* &* +@all`]
          return startRedis({ password: 'nobody knows', acl, args: tlsArgs(port, certificates) })
        }),
      )
      return { ports, [Symbol.asyncDispose]: stop }
    })
    const urlBy = (login: (index: number) => string): string =>
      `rediss://${quorum.ports.map((port, index) => `${login(index)}@127.0.0.1:${port}`).join()}?requestTimeout=10s${ca()}`
    await tryAllVerbs(
      urlBy((index) => `u${index}:${passwords[index]}`),
      passwords,
    )
    const { code, stdout, stderr } = await run(
      urlBy(() => `u0:${passwords[0]}`),
      'run',
      'job',
      '--',
      'echo',
      'in',
    )
    expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
    expect(stderr).toMatch(/no quorum for 'job': 2 of 3 nodes needed .*WRONGPASS/)
  },
)

describe.concurrent.each([
  ['sentinels', sentinelUrl],
  ['sentinels and a master with TLS and a login each', () => secureSentinelUrl() + ca()],
  ['a Cluster with TLS', () => secureClusterUrl() + ca()],
])('%s by URL', (_name, url) => {
  test('run, elect, status, doctor, bench, release and the dashboard work', MANY_STARTS, () => tryAllVerbs(url()))

  test('the runs of a job are recorded there', async () => {
    const env = { RINGFENCE_URL: url(), RINGFENCE_STORE: url() }
    expect(await home.run(['run', '--once', 'tick', '--', 'true'], { env })).toMatchObject({ code: 0, stderr: '' })
    const { stdout } = await home.run(['runs', 'tick', '--json'], { env })
    expect(JSON.parse(stdout)).toMatchObject({ runs: [{ outcome: 'done' }] })
  })
})

test.concurrent('a Cluster by URL grants', async () => {
  expect(await run(clusterUrl(), 'run', '--no-wait', 'other', '--', 'echo', 'in')).toEqual({
    code: 0,
    signal: null,
    stdout: 'in\n',
    stderr: '',
  })
})

describe.concurrent.each([
  ['ioredis', ioredisDriver],
  ['iovalkey', ioredisDriver],
  ['redis', nodeRedisDriver],
])('with the package %s', (name, driverOf) => {
  test.each(['sentinel', 'cluster'] as const)('a %s with TLS and logins grants', async (kind) => {
    const driver = driverOf(await import(name))
    const access = { user: undefined, password: PASSWORD, database: 0, tls: { ca: Buffer.from(certificates.ca) } }
    const login = { user: undefined, password: SENTINEL_PASSWORD }
    const opened: OpenClient =
      kind === 'sentinel'
        ? driver.sentinel({ sentinels: [at(secure.tlsPort)], name: secure.name, login }, access)
        : driver.cluster(cluster.tlsPorts.map(at), access)
    try {
      await opened.ready
      const locks = createLocks(redis(opened.client, { requestTimeout: '10s' }))
      expect(await locks.using(`by ${name}`, {}, (lease) => lease.held)).toBe(true)
      await locks.close()
    } finally {
      opened.close()
    }
  })
})

test.concurrent.each([
  ['an unknown authority of a Cluster', secureClusterUrl, 'certificate'],
  ['another authority of a Cluster', () => secureClusterUrl() + ca('other-ca.pem'), 'certificate'],
  ['an unknown authority of sentinels', secureSentinelUrl, 'certificate'],
  ['another authority of sentinels', () => secureSentinelUrl() + ca('other-ca.pem'), 'certificate'],
  ['another host of a Cluster', () => secureClusterUrl().replaceAll('127.0.0.1', 'localhost') + ca(), 'does not match'],
  ['another host of sentinels', () => secureSentinelUrl().replace('127.0.0.1', 'localhost') + ca(), 'does not match'],
  ['a Cluster without TLS', () => `rediss+cluster://127.0.0.1:${plain.port}`, ''],
  ['sentinels without TLS', () => `rediss+sentinel://127.0.0.1:${sentinels.sentinels[0]!.port}/ringfence`, ''],
])('%s: refused, and nothing goes by plain text instead', async (_what, url, reason) => {
  const address = url().replace('requestTimeout=10s', '')
  const { code, stdout, stderr } = await run(address, 'run', '--no-wait', 'job', '--', 'echo', 'in')
  expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
  expect(stderr).toContain(reason)
  for (const secret of [PASSWORD, encoded, SENTINEL_PASSWORD]) expect(stderr).not.toContain(secret)
})

test.concurrent.each([
  [
    'a name that the sentinels do not know',
    () => sentinelUrl().replace('/ringfence', '/other'),
    'the sentinels know no master of this name',
  ],
  [
    'a wrong password of the sentinels',
    () => secureSentinelUrl().replace(SENTINEL_PASSWORD, 'wrong') + ca(),
    'check sentinelUsername and sentinelPassword in the URL',
  ],
  [
    'a wrong password of the master',
    () => secureSentinelUrl().replace(encoded, 'wrong') + ca(),
    'check the user and the password in the URL',
  ],
  [
    'a wrong password of a Cluster',
    () => clusterUrl().replace(encoded, 'wrong'),
    'check the user and the password in the URL',
  ],
  [
    'a server that is no sentinel',
    () => `redis+sentinel://127.0.0.1:${plain.port}/ringfence`,
    'these servers are no sentinels',
  ],
  ['a server that is in no Cluster', () => `redis+cluster://127.0.0.1:${plain.port}`, 'write redis:// for a server'],
  [
    'a node of a Cluster as a server',
    () => `redis://:${encoded}@127.0.0.1:${cluster.nodes[0]!.port}`,
    'write redis+cluster:// in the URL',
  ],
  ['sentinels where nobody is', () => 'redis+sentinel://127.0.0.1:1/ringfence', 'is the server up, and the URL right?'],
  ['a Cluster where nobody is', () => 'redis+cluster://127.0.0.1:1', 'is the server up, and the URL right?'],
])('%s is named with what to do', async (_what, url, next) => {
  const address = url().replace('requestTimeout=10s', '')
  // In a slot that the first node of the Cluster does not have.
  const { code, stderr } = await run(address, 'run', '--no-wait', 'foo', '--', 'true')
  expect({ code, stderr }).toEqual({ code: EXIT.engine, stderr: expect.stringContaining(next) as string })
  expect(stderr).not.toMatch(/hush|whisper|wrong/)
})

test.concurrent('each node of a quorum has its own login, and a wrong one costs that node alone', async () => {
  const passwords = ['one-1', 'two-2', 'three-3']
  const acl = passwords.map((password, index) => `locks${index} on >${password} ~* &* +@all`)
  await using quorum = await startRedisNodes(3, { acl, args: ['--user', 'default', 'off'] })
  const urlWith = (given: readonly string[]): string => {
    const nodes = quorum.nodes.map(({ port }, index) => `locks${index}:${given[index]}@127.0.0.1:${port}`)
    return `redis://${nodes.join(',')}?requestTimeout=10s`
  }
  const echo = ['run', '--no-wait', 'job', '--', 'echo', 'in']
  expect(await run(urlWith(passwords), ...echo)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
  const oneWrong = urlWith(['one-1', 'wrong', 'three-3'])
  expect(await run(oneWrong, ...echo)).toMatchObject({ code: 0, stdout: 'in\n', stderr: '' })
  const doctor = await run(oneWrong, 'doctor')
  expect(doctor.stdout).toMatch(new RegExp(`127\\.0\\.0\\.1:${quorum.nodes[1]!.port}\\b`))
  expect(doctor.stdout).toContain('WRONGPASS')
  const twoWrong = await run(urlWith(['wrong', 'wrong', 'three-3']), ...echo)
  expect(twoWrong).toMatchObject({ code: EXIT.engine, stdout: '' })
  expect(twoWrong.stderr).toContain('check the user and the password in the URL')
  for (const { stdout, stderr } of [doctor, twoWrong]) expect(stdout + stderr).not.toMatch(/one-1|three-3|wrong\b/)
})

test.each([
  ['ioredis', ioredisDriver],
  ['iovalkey', ioredisDriver],
])('%s leaves a frozen master for the new one', async (name, driverOf) => {
  const access = { user: undefined, password: undefined, database: 0, tls: undefined }
  const group = { sentinels: sentinels.sentinels, name: sentinels.name, login: access }
  const { client, ready, close } = driverOf(await import(name)).sentinel(group, access)
  await ready
  const locks = createLocks(redis(client))
  await locks.using('a', {}, () => undefined)
  const frozen = await sentinels.primary()
  await frozen.freeze()
  const lease = await until(() => locks.tryAcquire('b'), { what: 'the new master grants', withinMs: 30_000 })
  expect(lease.held).toBe(true)
  await locks.close()
  close()
  await frozen.thaw()
  const isBack = async (): Promise<boolean> => (await sentinels.replicas()).includes(frozen)
  await until(isBack, { what: 'it is a replica now', withinMs: 30_000 })
})

// The last: it leaves one server fewer behind.
test('a lease outlives a failover, and whoever comes after it asks the new master', async () => {
  const env = { RINGFENCE_URL: sentinelUrl() }
  const holder = home.start(['run', '--ttl', '30s', 'kept', '--', ...WAITS], { env })
  const token = BigInt(await holder.printed(/token (\d+)\n/))
  const waiter = home.start(['run', '--wait', '50s', 'kept', '--', 'sh', '-c', 'echo "token $RINGFENCE_TOKEN"'], {
    env,
  })
  const inStep = async (): Promise<boolean> => {
    const replicas = await sentinels.replicas()
    return (await Promise.all(replicas.map((one) => one.cli('EXISTS', 'kept')))).every((answer) => answer === '1')
  }
  await until(inStep, { what: 'the replicas have the lease' })
  await sentinels.newPrimary(await sentinels.killPrimary())
  const isShown = async (): Promise<boolean> => (await home.run(['status', 'kept'], { env })).code === 0
  await until(isShown, { what: 'the new master shows the lease', withinMs: 20_000 })
  holder.type('\n')
  expect(await holder.ended).toMatchObject({ code: 0 })
  expect(BigInt(await waiter.printed(/token (\d+)\n/, 55_000))).toBeGreaterThan(token)
  expect(await waiter.ended).toMatchObject({ code: 0 })
})
