import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startMariadb } from './support/servers/mariadb.ts'
import { startPostgres } from './support/servers/postgres.ts'
import { startRedisNodes } from './support/servers/redis.ts'

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

test('the README and the pages of the engines quote their examples to the letter', async () => {
  const pages = (await readdir(`${root}/docs/engines`)).map((page) => `docs/engines/${page}`)
  for (const page of ['README.md', ...pages]) {
    const document = await readFile(`${root}/${page}`, 'utf8')
    const quotes = [...document.matchAll(/<!-- (examples\/\S+) -->\n```\w+\n([\s\S]*?)```/g)]
    expect({ page, quotes: quotes.length }).not.toEqual({ page, quotes: 0 })
    for (const [, file, text] of quotes) expect(text).toBe(await readFile(`${root}/${file}`, 'utf8'))
  }
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
