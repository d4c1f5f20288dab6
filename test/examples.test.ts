import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startConsul } from '../harness/servers/consul.ts'
import { startEtcd } from '../harness/servers/etcd.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'
import { startRedis, startRedisNodes } from '../harness/servers/redis.ts'
import { startZookeeper } from '../harness/servers/zookeeper.ts'
import { freePorts } from '../harness/ports.ts'
import { createFolder, removeFolder } from '../harness/temporary-folder.ts'
import { until } from '../harness/until.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const run = promisify(execFile)

async function output(example: string, env: Record<string, string> = {}): Promise<string> {
  const { stdout, stderr } = await run(process.execPath, [`examples/${example}`], {
    cwd: root,
    env: { ...process.env, ...env, NODE_OPTIONS: '' },
    timeout: 30_000,
  })
  expect(stderr).toBe('')
  return stdout
}

const engines = (await readdir(`${root}/docs/engines`)).map((name) => `docs/engines/${name}`)
const kinds = (await readdir(`${root}/docs/kinds`)).map((name) => `docs/kinds/${name}`)
const documents = [
  ...engines,
  ...kinds,
  'docs/dashboard.md',
  'docs/fencing.md',
  'docs/frameworks.md',
  'docs/observability.md',
]

test.each(documents)('%s quotes its examples to the letter', async (document) => {
  const quoting = await readFile(`${root}/${document}`, 'utf8')
  const quotes = [...quoting.matchAll(/<!-- (?:\.\.\/)*(examples\/\S+) -->\n```\w+\n([\s\S]*?)```/g)]
  expect(quotes.length).toBeGreaterThan(0)
  for (const [, file, text] of quotes) expect(text).toBe(await readFile(`${root}/${file}`, 'utf8'))
})

test('every example is run by a test', async () => {
  const own = await readFile(fileURLToPath(import.meta.url), 'utf8')
  // Those of frameworks have a test of their own.
  const files = (await readdir(`${root}/examples`)).filter((name) => name !== 'frameworks')
  for (const file of files) expect(own).toContain(`'${file}'`)
})

test('the quickstart lets one worker in after the other, with growing tokens', async () => {
  expect(await output('quickstart.mjs')).toBe(
    'first worker holds order:42, token 1\nsecond worker holds order:42, token 2\n',
  )
})

test('the example of shared leases has two readers at once, and a paused writer is refused', async () => {
  const folder = createFolder('example')
  expect(await output('shared.mjs', { LOCK_FILE: `${folder}/locks.db` })).toBe(
    'both hold it: true, with one token: true\na writer gets null\nthe reader sees tea 3\nrefused: STALE_TOKEN\nthe reader still sees tea 3\n',
  )
  removeFolder(folder)
})

test('the example of a call inside of another shows that it has the same token', async () => {
  expect(await output('reentrant.mjs')).toBe('5 on ada, token 1\n-20 on ada, token 2\n20 on bob, token 2\n')
})

test('the example of doubt goes on while there is none, and is told no after a short wait', async () => {
  expect(await output('doubt.mjs')).toBe('page 1 sent, lease is held\npage 2 sent, lease is held\nnull\n')
})

test('the example of a semaphore has two at a time, each with a permit of its own', async () => {
  const lines = (await output('semaphore.mjs')).split('\n')
  const permits = lines.slice(0, 4).map((line) => /^\w+ runs on GPU ([01]), token \d+$/.exec(line)?.[1])
  expect(new Set(permits.slice(0, 2))).toEqual(new Set(['0', '1']))
  expect(new Set(permits.slice(2))).toEqual(new Set(['0', '1']))
  expect(lines.slice(4)).toEqual(['held: gpu#0, gpu#1; one more: none', ''])
})

test('the example of metrics shows the lease that it holds', async () => {
  expect(await output('metrics.mjs')).toBe("1 { 'ringfence.engine': 'memory' }\n")
})

test('the observed service has its metrics scraped until it is told to end, and leaves no lease behind', async () => {
  await using nodes = await startRedisNodes(3)
  const [port = 0] = await freePorts(1)
  const env = { ...process.env, REDIS_URLS: nodes.urls.join(','), METRICS_PORT: String(port), NODE_OPTIONS: '' }
  const example = 'observed-service.mjs'
  const service = spawn(process.execPath, [`examples/${example}`], { cwd: root, env, stdio: 'pipe' })
  let complaints = ''
  service.stderr.setEncoding('utf8').on('data', (text: string) => (complaints += text))
  const ended = once(service, 'exit')
  try {
    const page = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    await until(async () => /^ringfence_guard_rejections_total\{.*} [1-9]/m.test(await page()), {
      what: 'a stale write was refused and shows',
      withinMs: 20_000,
    })
  } finally {
    service.kill('SIGTERM')
  }
  expect(await ended).toEqual([0, null])
  expect(complaints).toBe('')
  for (const node of nodes.nodes) {
    for (const name of ['order:42', 'report:daily', 'stock:7']) expect(await node.cli('EXISTS', name)).toBe('0')
  }
})

test('the fenced write of a paused holder is rejected', async () => {
  expect(await output('fenced-write.mjs')).toBe(
    'new stock: written with token 2\npaused one still holds: false\nold stock: rejected, 1 < 2\n',
  )
})

test('the leader leads, and the job runs once', async () => {
  expect(await output('leader.mjs')).toBe(
    "leading, term 1\nstepped down\n{ ran: true, value: 'report sent' }\n{ ran: false }\n",
  )
})

test('the Redis examples run on one server and on a quorum, and leave no lock behind', async () => {
  await using nodes = await startRedisNodes(3)
  expect(await output('redis.mjs', { REDIS_URL: nodes.urls[0]! })).toBe(
    'mine: token true, valid for true\nanother try gives null\nreleased while still mine: true\n',
  )
  expect(await output('redlock.mjs', { REDIS_URLS: nodes.urls.join(',') })).toBe(
    'holding account:1 and account:2 with one token: bigint\ndone\n',
  )
  for (const node of nodes.nodes) {
    const keys = (await node.cli('KEYS', '*')).split('\n').filter((key) => key !== '')
    expect(keys.filter((key) => !key.startsWith('ringfence:'))).toEqual([])
  }
})

test('the ZooKeeper example lets one after the other in, and leaves nothing but its path behind', async () => {
  await using server = await startZookeeper()
  const servers = `127.0.0.1:${server.port}`
  expect(await output('zookeeper.mjs', { ZOOKEEPER_SERVERS: servers })).toBe(
    'valid for true\nreleased while still mine: true\nthe next one has a greater token: true\n',
  )
  expect(await server.command('mntr')).toMatch(/zk_ephemerals_count\t0$/m)
})

test('the payment is charged once, although the first worker is killed in the middle', async () => {
  await using server = await startPostgres()
  expect(await output('charge-once.mjs', { DATABASE_URL: server.url })).toBe(
    'the first worker took the money, and was ended by SIGKILL before the commit\n' +
      'second worker: charged, receipt A-1, 401 left\n' +
      'third worker: charged already, receipt A-1, 401 left\n',
  )
})

test('the MongoDB example runs on a replica set and on one server alone', async () => {
  for (const replicaSet of [true, false]) {
    await using server = await startMongodb({ replicaSet })
    expect(await output('mongodb.mjs', { MONGODB_URL: server.url })).toBe(
      'balance 10\nholding account:1 and account:2 with one token: 2\nanother try gives null\nreleased while still mine: true\n',
    )
  }
})

test('the file example lets one process in at a time, with growing tokens', async () => {
  const folder = createFolder('example')
  const env = { LOCK_FILE: `${folder}/locks.db` }
  const outputs = await Promise.all([output('file.mjs', env), output('file.mjs', env)])
  const lines = outputs.map((text) => text.split('\n'))
  expect(lines.map(([, second]) => second)).toEqual(['backup done', 'backup done'])
  const tokens = lines.map(([first]) => /^backup with token (\d+)$/.exec(first!)?.[1])
  expect(new Set(tokens).size).toBe(2)
  removeFolder(folder)
})

test('the lease of the moving example goes from one process to another, once', async () => {
  const folder = createFolder('example')
  expect(await output('moving.mjs', { LOCK_FILE: `${folder}/locks.db` })).toBe(
    'web server: moved true, held false\n' +
      'worker: held true, for request 7f3a, token greater true\n' +
      'worker: a ticket is good for once: LEASE_LOST\n' +
      'web server: the worker is done\n',
  )
  removeFolder(folder)
})

test('the etcd example lets the next one in, and leaves no key behind', async () => {
  await using server = await startEtcd()
  expect(await output('etcd.mjs', { ETCD_URLS: server.url })).toBe(
    'released while still mine: true\nthe next one got in, with a greater token: true\n',
  )
  expect(await server.call('kv/range', { key: 'AA==', range_end: 'AA==' })).not.toHaveProperty('kvs')
})

test('the Consul example holds two resources with one token, and leaves no key behind', async () => {
  await using server = await startConsul()
  expect(await output('consul.mjs', { CONSUL_URL: server.url })).toBe(
    'holding both, with one token: bigint\naccount:1 is mine: true\naccount:2 is mine: true\nfree again: true\n',
  )
  expect(await server.call('GET', 'kv/?keys')).toEqual([])
})

test('the PostgreSQL example runs, and leaves no lease behind', async () => {
  await using server = await startPostgres()
  expect(await output('postgres.mjs', { DATABASE_URL: server.url })).toBe(
    'mine: token true; another try gives null\nmine as long as the connection: true\n42, by one at a time\n',
  )
  expect(await server.sql('SELECT count(*) FROM ringfence_leases WHERE owner IS NOT NULL')).toBe('0')
})

test('the MariaDB example runs, and leaves no lease behind', async () => {
  await using server = await startMariadb()
  const url = server.url.replace('mysql:', 'mariadb:')
  expect(await output('mariadb.mjs', { DATABASE_URL: url })).toBe(
    'both are mine: true, with one token true\nanother try gives null\nreleased while still mine: true\n',
  )
  expect(await server.sql('SELECT COUNT(*) FROM ringfence_leases WHERE owner IS NOT NULL')).toBe('0')
})

test('the incidents on PostgreSQL: the barista, the withdrawal, and the invoice, where a lock is the wrong tool', async () => {
  await using server = await startPostgres()
  const env = { POSTGRES_URL: server.url }
  // Twice: what the first run has left behind must not matter.
  for (let run = 0; run < 2; run++) {
    expect(await output('paused-barista.mjs', env)).toBe(
      'A sold one with token 1: 9 left\nB sold one with token 2: 8 left\n' +
        "A was refused: token 1 of 'espresso' is stale: 2 was seen; stop: a newer holder has taken over\n8 left, 1 write refused\n",
    )
    expect(await output('withdrawal.mjs', env)).toBe(
      'unguarded: node 2 paid out, node 1 paid out, balance 40\n' +
        'guarded: node 2 paid out, node 1 STALE_TOKEN, balance 70\n',
    )
    const [first, ...others] = (await output('invoice.mjs', env)).trimEnd().split('\n')
    expect(first).toBe('first worker: has paid, and dies before it can note it')
    expect(others.slice(-2)).toEqual(['fourth worker: charged already, receipt 1 over 99', 'charged 1 time'])
  }
})

test('the guard refuses a paused holder; of two workers that hold an order, one assignment is accepted', async () => {
  await using server = await startRedis()
  expect(await output('guard.mjs', { REDIS_URL: server.url })).toBe('refused: STALE_TOKEN\nthe report is new\n')
  expect(await output('delivery-dispatch.mjs', { REDIS_URL: server.url })).toBe(
    'both workers believe to hold the order: true\n' +
      'the second worker assigns Ada: 200, the driver is Ada\n' +
      'the first worker assigns Bob: 412, Stale fencing token\n' +
      'the second worker again, after a time-out, assigns Cem: 200, the driver is Ada\n' +
      'somebody without a lease assigns Dan: 428, Fencing token required\n' +
      'order:42 is delivered by Ada\n',
  )
})

test('the file in object storage: the late write of a paused holder is refused', async () => {
  expect(await output('object-storage.mjs')).toBe(
    "the first was refused: token 1 of 'report.txt' is stale: 2 was seen; stop: a newer holder has taken over\nwritten by the first\nwritten by the second\n",
  )
})

test('the dashboard in a server of its own: strangers see nothing, and a forced release is written down', async () => {
  expect(await output('dashboard.mjs')).toBe(
    'a stranger: 403\nada: 200\naudit: ada: release order:42: done\n{ ours: true }\n' +
      'forced (worker-1) <- granted (worker-1)\n',
  )
})
