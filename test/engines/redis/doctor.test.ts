import { chmodSync, readFileSync } from 'node:fs'
import { Cluster, Redis } from 'ioredis'
import { beforeAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'
import type { Finding } from '../../../src/engine.ts'
import type { RedisClient } from '../../../src/engines/redis/client.ts'
import { checkRedis, type RedisCheckPlan } from '../../../src/engines/redis/doctor/index.ts'
import { recognise } from '../../../src/engines/redis/drivers/recognise.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/index.ts'
import { server as installed } from '../../../harness/binaries.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startCluster } from '../../../harness/servers/redis-cluster.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

interface Address {
  readonly url: string
}

function connect({ url }: Address): RedisClient & Disposable {
  const client = new Redis(url)
  // Servers are killed here; the driver's own reports of it are not what is tested.
  client.on('error', () => undefined)
  return { ...recognise(client), [Symbol.dispose]: () => client.disconnect() }
}

// ioredis 4 leaves out the name in a URL without the parameter.
const asUser = (name: string, { host, port }: RedisServer): Address => ({
  url: `redis://${name}:any@${host}:${port}?allowUsernameInURI=true`,
})

/** With clients of its own where addresses are given. */
async function check(
  targets: readonly (Address | RedisClient)[],
  plan: Partial<RedisCheckPlan> = {},
): Promise<readonly Finding[]> {
  const restart = targets.length > 1 ? 'auto' : 'trust'
  const own = targets.map((target) => ('run' in target ? undefined : connect(target)))
  const clients = targets.map((target, index) => own[index] ?? (target as RedisClient))
  try {
    return await checkRedis({
      clients,
      clock: systemClock,
      random: systemRandom,
      ttlMs: 30_000,
      driftMs: 302,
      restart,
      ...plan,
    })
  } finally {
    for (const client of own) client?.[Symbol.dispose]()
  }
}

/** `severity: what was found`, of all findings with this id (and of this node). */
function said(findings: readonly Finding[], id: string, node?: RedisServer): string[] {
  const label = node === undefined ? undefined : `${node.host}:${node.port}`
  return findings
    .filter((finding) => finding.id === id && (label === undefined || finding.node === label))
    .map(({ severity, found }) => `${severity}: ${found}`)
}

function one(findings: readonly Finding[], id: string): Finding {
  const all = findings.filter((finding) => finding.id === id)
  expect(all.map(({ id }) => id)).toEqual([id])
  return all[0]!
}

function alarming(findings: readonly Finding[]): readonly Finding[] {
  return findings.filter(({ severity }) => severity === 'warning' || severity === 'critical')
}

const REDIS = /^This is Redis \d+\.\d+\.\d+\.$/
const VALKEY = /^This is Valkey \d+\.\d+\.\d+ \(speaks Redis /

test.each([
  // Valkey may have been asked for in its place.
  { name: 'Redis', valkey: false, version: 'valkey-server' in installed('redis').bin ? VALKEY : REDIS },
  { name: 'Valkey', valkey: true, version: VALKEY },
])('a durable $name alone passes every check', async ({ valkey, version }) => {
  await using server = await startRedis({ valkey, durable: true })
  const findings = await check([server])
  expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([])
  expect(findings.map(({ id }) => id)).toEqual([
    'redis/reachable',
    'redis/version',
    'redis/mode',
    'redis/role',
    'redis/state',
    'redis/eviction-policy',
    'redis/evicted-keys',
    'redis/persistence',
    'redis/disk-errors',
    'redis/replicas',
    'redis/scripts',
    'redis/permissions',
    'redis/wake-ups',
    'redis/round-trip',
    'redis/clock-offset',
    'redis/clock-drift',
  ])
  expect(one(findings, 'redis/version').found).toMatch(version)
})

test.concurrent('the doctor changes nothing on a server, even where it must try commands', async () => {
  await using server = await startRedis({ acl: ['bob on nopass ~* &* +@all -eval'] })
  await Promise.all([server, asUser('bob', server)].map((user) => check([user], { restart: 'auto' })))
  expect(await server.cli('INFO', 'persistence')).toMatch(/^rdb_changes_since_last_save:0\r?$/m)
  expect(await server.cli('DBSIZE')).toBe('0')
})

test.concurrent('nodes without persistence sit out after a restart, or are dangerous when trusted', async () => {
  await using nodes = await startRedisNodes(3)
  const clients = nodes.nodes
  const [auto, trust] = await Promise.all([check(clients), check(clients, { restart: 'trust' })])
  expect(alarming(auto)).toEqual([])
  expect(said(auto, 'redis/persistence')).toEqual(
    Array.from(
      { length: 3 },
      () => 'note: Its persistence is set to appendonly no, save "" (nothing is written to disk).',
    ),
  )
  expect(said(auto, 'redis/independence')).toEqual([
    'ok: The nodes are 3 different servers, and none is a replica of another.',
  ])
  expect(said(auto, 'redis/quorum')).toEqual(['ok: 3 of 3 nodes answer; 2 are needed.'])
  expect(alarming(trust).map(({ id, severity }) => `${severity} ${id}`)).toEqual(
    Array.from({ length: 3 }, () => 'critical redis/persistence'),
  )
})

test.concurrent('a single server that is not durable is a warning that says what it forgets', async () => {
  await using everySecond = await startRedis({ args: ['--appendonly', 'yes', '--appendfsync', 'everysec'] })
  await using snapshots = await startRedis({ args: ['--save', '3600 1'] })
  await using nothing = await startRedis()
  await using almost = await startRedis({ durable: true, args: ['--no-appendfsync-on-rewrite', 'yes'] })
  const servers = [everySecond, snapshots, nothing, almost]
  const findings = await Promise.all(servers.map((server) => check([server])))
  const persistence = findings.map((found) => one(found, 'redis/persistence'))
  expect(persistence.map(({ severity, found }) => `${severity}: ${found}`)).toEqual([
    'warning: Its persistence is set to appendonly yes, appendfsync everysec.',
    'warning: Its persistence is set to appendonly no, save "3600 1"; 0 changes are in no snapshot now.',
    'warning: Its persistence is set to appendonly no, save "" (nothing is written to disk).',
    'warning: Its persistence is set to appendonly yes, appendfsync always, but no-appendfsync-on-rewrite yes.',
  ])
  expect(persistence.map(({ meaning }) => meaning)).toEqual([
    expect.stringContaining('the last second or two'),
    expect.stringContaining('all since its last snapshot'),
    expect.stringContaining('all leases and fencing counters'),
    expect.stringContaining('while a rewrite or snapshot ran'),
  ])
})

test.concurrent('a server that cannot write its snapshots is critical, because it refuses writes', async () => {
  await using server = await startRedis({ args: ['--save', '3600 1'] })
  const folder = (await server.cli('CONFIG', 'GET', 'dir')).split('\n')[1]!
  chmodSync(folder, 0o555)
  await server.cli('BGSAVE').catch(() => undefined)
  await until(async () => (await server.cli('INFO', 'persistence')).includes('rdb_last_bgsave_status:err'), {
    what: 'the snapshot failed',
  })
  await expect(server.cli('SET', 'a', '1')).rejects.toThrow('MISCONF')
  const findings = await check([server])
  // Otherwise the server would refuse to stop.
  chmodSync(folder, 0o755)
  expect(said(findings, 'redis/disk-errors')).toEqual(['critical: In INFO, rdb_last_bgsave_status is err.'])
  expect(said(findings, 'redis/state')).toEqual([expect.stringMatching(/^critical: The server answers MISCONF/)])
})

test.concurrent('volatile-ttl with a limit is critical, and so are the keys it has evicted', async () => {
  await using server = await startRedis({ args: ['--maxmemory', '3mb', '--maxmemory-policy', 'volatile-ttl'] })
  const fill = "for i = 1, 40 do redis.call('set', 'k' .. i, string.rep('x', 100000), 'px', 600000) end"
  await server.cli('EVAL', fill, '0')
  for (let i = 0; i < 20; i++) await server.cli('SET', `more${i}`, 'x'.repeat(10_000), 'PX', '600000')
  const findings = await check([server])
  expect(said(findings, 'redis/eviction-policy')).toEqual([
    'critical: The maxmemory-policy is volatile-ttl, and maxmemory is 3.0 MiB.',
  ])
  expect(one(findings, 'redis/eviction-policy').meaning).toContain('exactly the leases')
  expect(said(findings, 'redis/evicted-keys')).toEqual([
    expect.stringMatching(/^critical: The server has evicted [1-9]\d* keys/),
  ])
})

test.concurrent('a full server that evicts nothing is critical, because it refuses writes', async () => {
  await using server = await startRedis()
  await server.cli('CONFIG', 'SET', 'maxmemory', '500kb')
  await expect(server.cli('SET', 'a', '1')).rejects.toThrow('OOM')
  const findings = await check([server])
  expect(said(findings, 'redis/memory')).toEqual([
    expect.stringMatching(/^critical: The server uses .* of 500\.0 KiB \(\d+ %\)\.$/),
  ])
  expect(said(findings, 'redis/eviction-policy')).toEqual([
    'note: The maxmemory-policy is noeviction, and maxmemory is 500.0 KiB.',
  ])
})

test.concurrent('a full server refuses to grant, but renews and releases, as the finding says', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  await using _closed = { [Symbol.asyncDispose]: async () => client.disconnect() }
  await using locks = createLocks(redis(client), { renew: false })
  const lease = await locks.acquire('held', { ttl: '20s' })
  await server.cli('CONFIG', 'SET', 'maxmemory', '500kb')
  await expect(locks.acquire('other', { wait: 0 })).rejects.toThrow('OOM')
  await lease.extend('30s')
  expect(lease.remaining()).toBeGreaterThan(20_000)
  expect(one(await locks.check(), 'redis/memory').meaning).toContain('still renewed and released')
  expect(await lease.release()).toBe(true)
})

test.concurrent('a replica given as a server is critical', async () => {
  await using master = await startRedis()
  await using replica = await startReplica(master)
  const findings = await check([replica])
  expect(said(findings, 'redis/role')).toEqual([`critical: This is a replica of 127.0.0.1:${master.port} (link up).`])
})

test.concurrent('one server given under two addresses is critical', async () => {
  await using nodes = await startRedisNodes(2)
  const [a, b] = nodes.nodes as [RedisServer, RedisServer]
  const findings = await check([a, b, { url: `redis://localhost:${b.port}` }])
  const [found] = said(findings, 'redis/independence')
  expect(found).toMatch(
    new RegExp(`^critical: 127.0.0.1:${b.port} and localhost:${b.port} are one server \\(run_id \\w+\\)\\.$`),
  )
})

test.concurrent('a replica of another node of the quorum is critical', async () => {
  await using nodes = await startRedisNodes(3)
  const [a, b, c] = nodes.nodes as [RedisServer, RedisServer, RedisServer]
  await replicate(c, a)
  const findings = await check([a, b, c])
  expect(said(findings, 'redis/independence')).toEqual([
    `critical: 127.0.0.1:${c.port} is a replica of 127.0.0.1:${a.port}.`,
  ])
  expect(said(findings, 'redis/role', c)).toEqual([expect.stringMatching(/^critical: This is a replica of/)])
  expect(said(findings, 'redis/replicas', a)).toEqual([expect.stringMatching(/^warning: The server has 1 replica: /)])
})

test.concurrent('an even number of nodes is a note, two are a warning', async () => {
  await using nodes = await startRedisNodes(4)
  const clients = nodes.nodes
  const [four, two] = await Promise.all([check(clients), check(clients.slice(2))])
  expect(said(four, 'redis/node-count')).toEqual(['note: The quorum has 4 nodes.'])
  expect(said(two, 'redis/node-count')).toEqual(['warning: The quorum has 2 nodes.'])
})

test.concurrent('a replica that is not yet in step is waited for', async () => {
  await using master = await startRedis({ args: ['--repl-diskless-sync', 'yes', '--repl-diskless-sync-delay', '600'] })
  await using _replica = await startRedis({ args: ['--replicaof', '127.0.0.1', String(master.port)] })
  await until(async () => (await master.cli('INFO', 'replication')).includes('state=wait_bgsave'), {
    what: 'it waits for the data',
  })
  expect(one(await check([master]), 'redis/replicas').remedy).toMatch(
    /^Wait until a replica is online\. Then redis\(client, \{ replicas: 1 \}\) grants /,
  )
})

test.concurrent('replicas of a single server are a warning, unless leases wait for them', async () => {
  await using master = await startRedis()
  await using _replica = await startReplica(master)

  const [none, first, second] = await Promise.all([
    check([master]),
    check([master], { replicas: 1 }),
    check([master], { replicas: 2 }),
  ])
  expect(one(none, 'redis/replicas')).toMatchObject({
    severity: 'warning',
    found: expect.stringMatching(/^The server has 1 replica: 127\.0\.0\.1:\d+ is \d+ bytes behind, heard \d+ s ago\.$/),
    remedy: expect.stringContaining('redis(client, { replicas: 1 })'),
  })
  expect(one(first, 'redis/replicas').severity).toBe('note')
  expect(one(second, 'redis/replicas').severity).toBe('critical')
  expect(one(none, 'redis/min-replicas').severity).toBe('note')
  await master.cli('CONFIG', 'SET', 'min-replicas-to-write', '2')
  expect(said(await check([master]), 'redis/min-replicas')).toEqual([
    'critical: The setting min-replicas-to-write is 2, and min-replicas-max-lag is 10.',
  ])
})

const everything = '~* &* +@all'

const users = [
  {
    rules: `${everything} -del`,
    id: 'redis/permissions',
    severity: 'critical',
    found: /may not run DEL locks:doctor-of-ringfence/,
  },
  { rules: `${everything} -time`, id: 'redis/permissions', severity: 'critical', found: /may not run TIME\.$/ },
  { rules: `~* resetchannels +@all`, id: 'redis/permissions', severity: 'ok', found: /may run/ },
  { rules: `~* resetchannels +@all`, id: 'redis/wake-ups', severity: 'warning', found: /may not publish or subscribe/ },
  { rules: `${everything} -publish`, id: 'redis/wake-ups', severity: 'warning', found: /may not publish to/ },
  {
    rules: `~lock:* &* +@all`,
    id: 'redis/permissions',
    severity: 'critical',
    found: /EVALSHA \(key ringfence:fence:\S+\)/,
  },
  {
    rules: `~order:* ~ringfence:* &* +@all`,
    id: 'redis/permissions',
    severity: 'critical',
    found: /SET locks:doctor-of-ringfence/,
  },
  { rules: `${everything} -scan`, id: 'redis/inspection', severity: 'note', found: /may not run SCAN/ },
  { rules: `${everything} -subscribe`, id: 'redis/wake-ups', severity: 'warning', found: /may not subscribe/ },
  {
    rules: `${everything} -eval`,
    id: 'redis/scripts',
    severity: 'critical',
    found: /^The server does not run scripts: NOPERM/,
  },
  // Without EVAL no script can be asked, so everything is tried.
  {
    rules: `${everything} -eval -pexpire`,
    id: 'redis/permissions',
    severity: 'critical',
    found: /may not run EVAL .*, PEXPIRE locks:doctor-of-ringfence/,
  },
  { rules: `${everything} -eval -subscribe`, id: 'redis/wake-ups', severity: 'warning', found: /may not subscribe/ },
]

describe('users', () => {
  let findings: (readonly Finding[])[]

  // One server and all at the same time: each check waits for most of its time.
  beforeAll(async () => {
    await using server = await startRedis({ acl: users.map(({ rules }, index) => `user${index} on nopass ${rules}`) })
    const addresses = users.map((_, index) => asUser(`user${index}`, server))
    findings = await Promise.all(addresses.map((address) => check([address], { prefix: 'locks:' })))
  })

  test.each(users.map((user, index) => ({ ...user, index })))(
    'a user with $rules gives $id: $severity',
    ({ index, id, severity, found }) => {
      const finding = one(findings[index]!, id)
      expect(finding.found).toMatch(found)
      expect(finding.severity).toBe(severity)
    },
  )
})

test.concurrent('the rules that the doctor proposes are enough', async () => {
  await using server = await startRedis({ acl: ['bob on nopass +ping +info +acl|whoami'] })
  const bob = asUser('bob', server)
  const before = one(await check([bob], { prefix: 'lock:', restart: 'auto' }), 'redis/permissions')
  expect(before.severity).toBe('critical')
  const documented = readFileSync(new URL('../../../docs/engines/redis.md', import.meta.url), 'utf8')
  expect(documented).toContain(before.remedy!.replace('bob', 'app'))
  await server.cli(...before.remedy!.split(' '))
  const after = await check([bob], { prefix: 'lock:', restart: 'auto' })
  expect(said(after, 'redis/permissions')).toEqual([expect.stringMatching(/^ok: The user bob may run/)])
  expect(said(after, 'redis/wake-ups')).toEqual(['ok: The user bob may publish and subscribe.'])
  await server.cli(...one(after, 'redis/restart-check').remedy!.split(' '))
  expect(said(await check([bob], { prefix: 'lock:', restart: 'auto' }), 'redis/restart-check')).toEqual([])
  expect(said(after, 'redis/inspection')).toEqual([])
})

test.concurrent('where INFO and CONFIG are refused, the doctor says what it could not find out', async () => {
  await using nodes = await startRedisNodes(3, { acl: [`bob on nopass ${everything} -info -config -role`] })
  const findings = await check(nodes.nodes.map((node) => asUser('bob', node)))
  const unknowns = findings.filter(({ found }) => found.startsWith('Could not find out'))
  expect(unknowns.map(({ severity }) => severity)).toEqual(unknowns.map(() => 'note'))
  expect(new Set(unknowns.map(({ id }) => id))).toEqual(
    new Set([
      'redis/independence',
      'redis/version',
      'redis/mode',
      'redis/role',
      'redis/eviction-policy',
      'redis/persistence',
      'redis/replicas',
    ]),
  )
  expect(one(unknowns, 'redis/independence').remedy).toContain('+info')
  // With 'auto', a node that does not know the script is asked how long it has been up.
  expect(said(findings, 'redis/permissions')[0]).toBe('critical: The user bob may not run INFO server.')
})

test.concurrent('a server whose CONFIG was renamed keeps one check from being made, and a renamed EVAL is critical', async () => {
  await using config = await startRedis({ durable: true, args: ['--rename-command', 'CONFIG', 'hidden'] })
  await using scripts = await startRedis({ args: ['--rename-command', 'EVAL', 'hidden'] })
  const [managed, scriptless] = await Promise.all([check([config]), check([scripts])])
  expect(alarming(managed)).toEqual([])
  expect(said(managed, 'redis/persistence')).toEqual([
    expect.stringMatching(/^note: Could not find out how often it writes to disk .*unknown command/i),
  ])
  expect(one(scriptless, 'redis/scripts')).toMatchObject({
    severity: 'critical',
    remedy: expect.stringContaining('rename-command'),
  })
})

test.concurrent('a frozen node is a finding within seconds, and the others are checked', async () => {
  await using nodes = await startRedisNodes(3)
  const [a, b, c] = nodes.nodes as [RedisServer, RedisServer, RedisServer]
  using first = connect(a)
  using second = connect(b)
  using third = connect(c)
  const clients = [first, second, third]
  await Promise.all(clients.map((client) => client.run(['PING'])))
  await c.freeze()
  const startedAt = performance.now()
  const findings = await check(clients)
  expect(performance.now() - startedAt).toBeLessThan(10_000)
  expect(findings.filter(({ node }) => node === `127.0.0.1:${c.port}`)).toEqual([
    expect.objectContaining({
      id: 'redis/reachable',
      severity: 'warning',
      found: 'The server cannot be used: no answer within 2000 ms.',
    }),
  ])
  expect(said(findings, 'redis/quorum')).toEqual(['warning: 2 of 3 nodes answer; 2 are needed.'])
  expect(said(findings, 'redis/round-trip')).toHaveLength(2)
})

test.concurrent('too few nodes for a quorum, a closed client and a missing password are findings, not rejections', async () => {
  await using nodes = await startRedisNodes(2, { password: 'secret' })
  const [a, gone] = nodes.nodes as [RedisServer, RedisServer]
  const closed = new Redis(a.url)
  closed.disconnect()
  await gone.kill()
  const clients = [recognise(closed), gone, { url: `redis://127.0.0.1:${a.port}` }]
  const findings = await check(clients)
  expect(said(findings, 'redis/quorum')).toEqual(['critical: 0 of 3 nodes answer; 2 are needed.'])
  expect(said(findings, 'redis/reachable')).toEqual([
    expect.stringContaining('closed'),
    expect.stringMatching(/^warning: /),
    expect.stringMatching(/^warning: The server cannot be used: NOAUTH/),
  ])
  expect(JSON.stringify(findings)).not.toContain('secret')
})

test.concurrent('a server that falls silent during the check ends it, with what was found until then', async () => {
  await using server = await startRedis()
  using client = connect(server)
  const run: RedisClient['run'] = (command) =>
    command[0] === 'TIME' ? new Promise(() => undefined) : client.run(command)
  const findings = await check([{ ...client, masters: () => Promise.resolve([{ label: client.label, run }]) }])
  expect(one(findings, 'redis/unfinished')).toMatchObject({ severity: 'warning' })
  expect(said(findings, 'redis/permissions')).toHaveLength(1)
})

test.concurrent('a driver that throws or answers nonsense is a finding, not a rejection', async () => {
  using client = connect({ url: 'redis://127.0.0.1:1' })
  const nonsense = { label: 'nonsense:1', run: () => Promise.resolve(42) }
  const broken = await check([{ ...client, masters: () => Promise.resolve(undefined as never) }])
  const odd = await check([{ ...client, masters: () => Promise.resolve([nonsense]) }])
  expect(said(broken, 'redis/reachable')).toEqual([
    expect.stringMatching(/^critical: The server cannot be used: Cannot read/),
  ])
  expect(said(odd, 'redis/clock-offset')).toEqual([
    'note: Could not find out its time: TIME was answered with nonsense.',
  ])
})

test('a clock 5 s ahead is a warning with the difference, and its lease time is not doubted', async () => {
  await using nodes = await startRedisNodes(3, { clockShift: true })
  const [ahead, ...others] = nodes.nodes as [RedisServer, RedisServer, RedisServer]
  ahead.shiftClock(5000)
  const findings = await check(nodes.nodes)
  const [between, ...each] = said(findings, 'redis/clock-offset')
  expect(between).toMatch(
    new RegExp(`^warning: The clock of 127.0.0.1:${ahead.port} is (4999|500\\d) ms \\(±.* ms\\) ahead of`),
  )
  expect(each[0]).toMatch(/^warning: Its clock is (49\d\d|50\d\d) ms \(±.* ms\) ahead of that of this process\.$/)
  expect(others.map((node) => said(findings, 'redis/clock-offset', node))).toEqual([
    [expect.stringMatching(/^ok: /)],
    [expect.stringMatching(/^ok: /)],
  ])
  expect(said(findings, 'redis/clock-drift').filter((text) => /^(warning|critical)/.test(text))).toEqual([])
})

test('a clock that runs a tenth too fast is critical, one that runs too slow a warning', async () => {
  await using nodes = await startRedisNodes(2, { clockShift: true })
  const [fast, slow] = nodes.nodes as [RedisServer, RedisServer]
  const startedAt = performance.now()
  const shifting = setInterval(() => {
    fast.shiftClock((performance.now() - startedAt) / 10)
    slow.shiftClock((startedAt - performance.now()) / 10)
  }, 2)
  const [ofFast, ofSlow] = await Promise.all([check([fast]), check([slow])])
  clearInterval(shifting)
  expect(said(ofFast, 'redis/clock-drift')).toEqual([
    expect.stringMatching(/^critical: Its clock (ran .* faster|jumped)/),
  ])
  expect(said(ofSlow, 'redis/clock-drift')).toEqual([
    expect.stringMatching(/^(warning: .* slower|critical: Its clock jumped)/),
  ])
})

test('a slow network is measured against the ttl, and a drift that it hides is not reported as none', async () => {
  await using server = await startRedis()
  await using proxy = await startProxy(server.port)
  using client = connect(proxy)
  await client.run(['PING'])
  proxy.delay(15)
  const ttls = [30_000, 240, 60]
  const [long, short, shorter] = await Promise.all(
    ttls.map((ttlMs) => check([client], { ttlMs, driftMs: ttlMs / 100 + 2 })),
  )
  expect(one(long!, 'redis/round-trip').severity).toBe('ok')
  expect(one(short!, 'redis/round-trip').severity).toBe('warning')
  expect(one(shorter!, 'redis/round-trip').severity).toBe('critical')
  expect(one(long!, 'redis/clock-drift')).toMatchObject({
    severity: 'note',
    meaning: expect.stringContaining('too slow to tell'),
  })
})

test.concurrent('a script that does not end is critical, and the check does', async () => {
  await using server = await startRedis({ args: ['--busy-reply-threshold', '50'] })
  using client = connect(server)
  await client.run(['PING'])
  const endless = server.cli('EVAL', 'while true do end', '0').catch(() => undefined)
  await until(
    () =>
      server.cli('PING').then(
        () => false,
        (error: unknown) => String(error).includes('BUSY'),
      ),
    {
      what: 'the server is busy',
    },
  )
  const findings = await check([client])
  expect(findings).toEqual([expect.objectContaining({ id: 'redis/state', severity: 'critical' })])
  await server.cli('SCRIPT', 'KILL')
  await endless
})

test.concurrent('a Cluster passes through a Cluster client, and one of its nodes through a plain client is critical', async () => {
  await using group = await startCluster()
  const { host, port } = group.nodes[0]!
  const cluster = new Cluster([{ host, port }])
  const [whole, plain] = await Promise.all([check([recognise(cluster)]), check([group.nodes[0]!])])
  cluster.disconnect()
  expect(alarming(whole).filter(({ id }) => id !== 'redis/persistence')).toEqual([])
  expect(said(whole, 'redis/mode')).toEqual(
    Array.from({ length: 3 }, () => 'ok: The mode is cluster, as its client expects.'),
  )
  expect(said(whole, 'redis/wake-ups')).toEqual(
    Array.from({ length: 3 }, () => 'ok: The user default may spublish and ssubscribe.'),
  )
  expect(said(plain, 'redis/mode')).toEqual(['critical: This is a node of a Cluster behind a plain client.'])
})

async function startReplica(master: RedisServer): Promise<RedisServer> {
  const replica = await startRedis()
  await replicate(replica, master)
  return replica
}

async function replicate(replica: RedisServer, master: RedisServer): Promise<void> {
  await master.cli('CONFIG', 'SET', 'repl-diskless-sync-delay', '0')
  await replica.cli('REPLICAOF', master.host, String(master.port))
  await until(async () => (await master.cli('INFO', 'replication')).includes('state=online'), {
    what: 'the replica is in step',
  })
  // Valkey 9 says so on the one before the other knows.
  await until(async () => (await replica.cli('INFO', 'replication')).includes('master_link_status:up'), {
    what: 'the replica knows',
  })
}

test('a client that is closed is named as what is wrong; only a Cluster client needs a Cluster', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  const closed = recognise(client)
  await client.quit()
  await until(() => client.status === 'end', { what: 'the client to be closed' })
  expect(one(await check([closed]), 'redis/reachable')).toMatchObject({
    found: expect.stringMatching(/^The client of the server cannot be used: it is closed \(quit\(\), /) as string,
    remedy: 'Make the engine with a client that is open.',
  })
  const lost = { ...closed, unusable: () => undefined }
  expect(one(await check([lost]), 'redis/reachable').remedy).not.toContain('Cluster')
})

test('with a prefix that the user may not use, nothing can be locked: that is critical', async () => {
  await using server = await startRedis()
  const rights =
    '+evalsha +eval +get +set +time +del +pexpire +pttl +publish +subscribe +scan ~ringfence:* &ringfence:freed:*'
  await server.cli('ACL', 'SETUSER', 'other', 'on', 'nopass', ...rights.split(' '), '~y:*')
  const other = one(await check([asUser('other', server)], { prefix: 'x:' }), 'redis/permissions')
  expect(other).toMatchObject({ severity: 'critical', remedy: 'ACL SETUSER <user> ~x:*' })
  expect(other.found).toMatch(/^This user may not run /)
  await server.cli('ACL', 'SETUSER', 'some', 'on', 'nopass', ...rights.split(' '), '+acl', '~x:orders:*')
  const some = one(await check([asUser('some', server)], { prefix: 'x:' }), 'redis/permissions')
  expect(some.severity).toBe('warning')
  expect(some.found).toMatch(/^The user some may not run /)
  // Without a prefix, the right to the engine's own keys must not pass for one to those of locks.
  const none = one(await check([asUser('other', server)]), 'redis/permissions')
  expect(`${none.severity}: ${none.remedy}`).toMatch(/^warning: Is the prefix option missing .* ~<names>\*/)
})
