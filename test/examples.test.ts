import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startConsul } from '../harness/servers/consul.ts'
import { startEtcd } from '../harness/servers/etcd.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'
import { startRedisNodes } from '../harness/servers/redis.ts'
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

/** Started by the first test that asks, stopped after the last one: a server for each test would take most of the time. */
function shared<T extends { stop: () => Promise<void> }>(start: () => Promise<T>): () => Promise<T> {
  let started: Promise<T> | undefined
  afterAll(async () => (await started)?.stop())
  return () => (started ??= start())
}

const redisNodes = shared(() => startRedisNodes(3))
const database = shared(() => startPostgres())
const single = shared(() => startMongodb({ replicaSet: false }))

/** Where the recipes find their servers. */
async function addresses(): Promise<Record<string, string>> {
  const [{ urls }, { url }] = await Promise.all([redisNodes(), database()])
  return { REDIS_URL: urls[0]!, DATABASE_URL: url }
}

const engines = (await readdir(`${root}/docs/engines`)).map((name) => `docs/engines/${name}`)
const kinds = (await readdir(`${root}/docs/kinds`)).map((name) => `docs/kinds/${name}`)
const recipes = (await readdir(`${root}/docs/recipes`)).filter((name) => name !== 'README.md')
const documents = [
  ...engines,
  ...kinds,
  ...recipes.map((name) => `docs/recipes/${name}`),
  'docs/dashboard.md',
  'docs/fencing.md',
  'docs/frameworks.md',
  'docs/observability.md',
  'docs/redlock-drop-in.md',
]

async function programs(): Promise<string[]> {
  const files = await readdir(`${root}/examples`, { recursive: true })
  return files.filter((name) => /\.(mjs|cjs|ts)$/.test(name)).map((name) => name.replaceAll('\\', '/'))
}

test.each(documents)('%s quotes its examples to the letter', async (document) => {
  const quoting = await readFile(`${root}/${document}`, 'utf8')
  const quotes = [...quoting.matchAll(/<!-- (?:\.\.\/)*(examples\/\S+) -->\n```\w+\n([\s\S]*?)```/g)]
  expect(quotes.length).toBeGreaterThan(0)
  for (const [, file, text] of quotes) expect(text).toBe(await readFile(`${root}/${file}`, 'utf8'))
})

test('every example is run by a test', async () => {
  const own = await readFile(fileURLToPath(import.meta.url), 'utf8')
  // Those of frameworks have a test of their own.
  const files = (await programs()).filter((name) => !name.startsWith('frameworks/'))
  expect(files.filter((file) => !own.includes(`'${file}'`))).toEqual([])
})

test('every example is linked from the index of the recipes, and every recipe is quoted', async () => {
  const index = await readFile(`${root}/docs/recipes/README.md`, 'utf8')
  const files = await programs()
  expect(files.filter((file) => !index.includes(`](../../examples/${file})`))).toEqual([])
  const pages = await Promise.all(recipes.map((name) => readFile(`${root}/docs/recipes/${name}`, 'utf8')))
  const quoted = files.filter((file) => file.startsWith('recipes/'))
  expect(quoted.filter((file) => !pages.join('').includes(`<!-- ../../examples/${file} -->`))).toEqual([])
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
  const nodes = await redisNodes()
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
  const nodes = await redisNodes()
  const keys = async (): Promise<string[]> => {
    const all = await Promise.all(nodes.nodes.map((node) => node.cli('KEYS', '*')))
    return all.flatMap((text) => text.split('\n')).filter((key) => key !== '' && !key.startsWith('ringfence:'))
  }
  const before = await keys()
  expect(await output('redis.mjs', { REDIS_URL: nodes.urls[0]! })).toBe(
    'mine: token true, valid for true\nanother try gives null\nreleased while still mine: true\n',
  )
  expect(await output('redlock.mjs', { REDIS_URLS: nodes.urls.join(',') })).toBe(
    'holding account:1 and account:2 with one token: bigint\ndone\n',
  )
  // The third node may not have been let in when the lock was extended.
  expect(await output('redlock-drop-in.mjs', { REDIS_URLS: nodes.urls.join(',') })).toMatch(
    /^extended by [23] nodes\nheld: ExecutionError after 4 attempts\nthe token has grown: true\ncharged 12\n$/,
  )
  expect(await keys()).toEqual(before)
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
  const server = await database()
  expect(await output('charge-once.mjs', { DATABASE_URL: server.url })).toBe(
    'the first worker took the money, and was ended by SIGKILL before the commit\n' +
      'second worker: charged, receipt A-1, 401 left\n' +
      'third worker: charged already, receipt A-1, 401 left\n',
  )
})

test('the MongoDB example runs on a replica set and on one server alone', async () => {
  await using replicaSet = await startMongodb({ replicaSet: true })
  for (const { url } of [replicaSet, await single()]) {
    expect(await output('mongodb.mjs', { MONGODB_URL: url })).toBe(
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
  const server = await database()
  expect(await output('postgres.mjs', { DATABASE_URL: server.url })).toBe(
    'mine: token true; another try gives null\nmine as long as the connection: true\n42, by one at a time\n',
  )
  expect(
    await server.sql("SELECT count(*) FROM ringfence_leases WHERE owner IS NOT NULL AND resource = 'invoice:42'"),
  ).toBe('0')
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
  const server = await database()
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
  const { REDIS_URL = '' } = await addresses()
  expect(await output('guard.mjs', { REDIS_URL })).toBe('refused: STALE_TOKEN\nthe report is new\n')
  expect(await output('delivery-dispatch.mjs', { REDIS_URL })).toBe(
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

test('recipe: of three machines with the same cron job, one runs it', async () => {
  const env = await addresses()
  const { nodes } = await redisNodes()
  const outputs = await Promise.all([1, 2, 3].map(() => output('recipes/cron.mjs', env)))
  expect(outputs.toSorted()).toEqual(['ran elsewhere\n', 'ran elsewhere\n', 'ran here\n'])
  expect(await nodes[0]!.cli('LRANGE', 'reminders', '0', '-1')).toBe('ada\nbob')
})

const leads = ({ said }: { said: string }): boolean => said.startsWith('leading')
const tokenOf = ({ said }: { said: string }): bigint => BigInt(/token (\d+)/.exec(said)![1]!)

test('recipe: a leader that is killed is followed by another one, which steps down when it is told to', async () => {
  const env = { ...process.env, ...(await addresses()), NODE_OPTIONS: '' }
  const leader = 'recipes/leader.mjs'
  const start = () => {
    const child = spawn(process.execPath, [`examples/${leader}`], { cwd: root, env, stdio: 'pipe' })
    const run = { child, said: '', complaints: '', ended: once(child, 'exit') }
    child.stdout.setEncoding('utf8').on('data', (text: string) => (run.said += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (run.complaints += text))
    return run
  }
  const runs = [start(), start()]
  try {
    const first = await until(() => runs.find(leads), { what: 'one of them leads' })
    const second = runs.find((run) => run !== first)!
    first.child.kill('SIGKILL')
    await until(() => leads(second), { what: 'the other one leads' })
    expect(tokenOf(second)).toBeGreaterThan(tokenOf(first))
    second.child.kill('SIGTERM')
    expect(await second.ended).toEqual([0, null])
    expect(second.said.split('\n').slice(1)).toEqual(['stepped down', ''])
    expect(second.complaints).toBe('')
  } finally {
    for (const { child } of runs) child.kill('SIGKILL')
  }
  const { nodes } = await redisNodes()
  expect(await nodes[0]!.cli('EXISTS', 'scheduler')).toBe('0')
})

/** What each recipe prints. It shows the case that goes wrong without it. */
const RECIPES: Record<string, string> = {
  'recipes/queue-worker.mjs': 'back in the queue, within the ttl: true\norder 7 is processed\ndone\n',
  'recipes/rate-limit.mjs': 'one statement: 1 of 10 may send\nonce with atLeast: 1 of 10 have sent\n',
  'recipes/job-table.mjs': '20 jobs are done, each by one worker: true; 1 try failed\n',
  'recipes/job-runs.mjs':
    'the first run: account 2 is broken\nthe second run pays 1\nthe third run pays 0\n' +
    'done <- done <- failed (account 2 is broken)\n',
  'recipes/for-update.mjs': '3 of 5 could pay; 10 left, 3 in the history\n',
  'recipes/booking.mjs':
    'Ada, 1st to 5th: true\nBob, 4th to 6th: false\nBob, 5th to 6th: true\nfour at once: 1 has it\n',
  'recipes/state.mjs': 'payment: paid\npayment: paid already\nshipped or cancelled, and not both: 1 was refused\n',
  'recipes/pause-on-doubt.mjs':
    'ada: the lease was held, is held: sent with token true\n' +
    'the server does not answer: ENGINE, the lease is doubtful\n' +
    'bob: the lease was doubtful, is held: sent with token true\n' +
    'cem: the lease was held, is held: sent with token true\n',
  'recipes/retry-or-let-go.mjs':
    'a short outage: settled\na long outage: let go after 57P01\nfree for the next one: true\n',
  'recipes/services.mjs':
    'payment has it; shipping may: false\npayment goes on: LEASE_LOST, expired\ndone: inventory, payment, shipping\n',
  'recipes/shards.mjs': 'cem joins: 23 of 64 shards move, all to cem: true\nbob writes: STALE_TOKEN\nby cem\n',
}

test.each(Object.entries(RECIPES))('%s does what its page says', async (recipe, printed) => {
  expect(await output(recipe, await addresses())).toBe(printed)
})

test('recipe: of five that want one document of MongoDB, as many get it as there are', async () => {
  const { url } = await single()
  expect(await output('recipes/document.mjs', { MONGODB_URL: url })).toBe(
    '1 of 5 has the seat\n3 of 5 got one, 0 left, 3 takers\n',
  )
})
