import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startPostgres } from './support/servers/postgres.ts'
import { startRedis, startRedisNodes } from './support/servers/redis.ts'

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

test('the README quotes its examples to the letter', async () => {
  const readme = await readFile(`${root}/README.md`, 'utf8')
  const quotes = [...readme.matchAll(/<!-- (examples\/\S+) -->\n```\w+\n([\s\S]*?)```/g)]
  expect(quotes.length).toBeGreaterThan(0)
  for (const [, file, text] of quotes) expect(text).toBe(await readFile(`${root}/${file}`, 'utf8'))
})

test('every example is run by a test', async () => {
  const own = await readFile(fileURLToPath(import.meta.url), 'utf8')
  for (const file of await readdir(`${root}/examples`)) expect(own).toContain(`'${file}'`)
})

test('the quickstart lets one worker in after the other, with growing tokens', async () => {
  expect(await output('quickstart.mjs')).toBe(
    'first worker holds order:42, token 1\nsecond worker holds order:42, token 2\n',
  )
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

test('the incidents on PostgreSQL: the barista, the withdrawal, and the invoice, where a lock is the wrong tool', async () => {
  await using server = await startPostgres()
  const env = { POSTGRES_URL: server.url }
  // Twice: what the first run has left behind must not matter.
  for (let run = 0; run < 2; run++) {
    expect(await output('paused-barista.mjs', env)).toBe(
      'A sold one with token 1: 9 left\nB sold one with token 2: 8 left\n' +
        "A was refused: token 1 of 'espresso' is stale: 2 was seen\n8 left, 1 write refused\n",
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
    "the first was refused: token 1 of 'report.txt' is stale: 2 was seen\nwritten by the first\nwritten by the second\n",
  )
})
