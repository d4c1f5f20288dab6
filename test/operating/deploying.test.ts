import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Home } from '../../harness/command.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'
import { createFolder, giveToServer, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { EXIT } from '../../src/cli/exit-codes.ts'
import { redlock } from '../../src/engines/redis/index.ts'
import { redisGuard } from '../../src/guards/redis.ts'
import { createLocks, type Locks } from '../../src/index.ts'

const PAGES = path.resolve(import.meta.dirname, '../../docs/operating')
const read = (name: string): string => readFileSync(path.join(PAGES, name), 'utf8')

const home = new Home()
const folder = createFolder('acl')

/** A file that the servers may read. */
function serverFile(name: string, text: string): string {
  const file = path.join(folder, name)
  writeFileSync(file, text)
  giveToServer(file)
  return file
}

let servers: Awaited<ReturnType<typeof startRedisNodes>>
let clients: Redis[]
let env: { RINGFENCE_URL: string }

beforeAll(async () => {
  const users = serverFile('users.acl', read('users.acl'))
  const config = read('redis.conf').replace(/^aclfile .*/m, `aclfile ${users}`)
  servers = await startRedisNodes(5, { config: serverFile('redis.conf', config) })
  const places = servers.nodes.map(({ host, port }) => `${host}:${port}`)
  clients = places.map((place) => new Redis(`redis://app:change-this@${place}`))
  // One of them restarts; the driver's own reports of it are not what is tested.
  for (const client of clients) client.on('error', () => undefined)
  env = { RINGFENCE_URL: `redis://app:change-this@${places.join(',')}?prefix=lock:` }
})
afterAll(async () => {
  for (const client of clients) client.disconnect()
  await home[Symbol.asyncDispose]()
  await servers.stop()
  removeFolder(folder)
})

/** What the doctor warns of. */
async function unfit(locks: Locks): Promise<string[]> {
  const serious = (await locks.check()).filter(({ severity }) => severity === 'critical' || severity === 'warning')
  return serious.map(({ id, found }) => `${id}: ${found}`)
}

test('five nodes with redis.conf and users.acl are fit, but for the machine that they share here', async () => {
  expect(await home.run(['init'], { env })).toMatchObject({ code: 0 })
  const locks = createLocks(redlock(clients, { prefix: 'lock:' }))
  expect(await unfit(locks)).toEqual([])
  const findings = await locks.check()
  const notes = findings.filter(({ severity }) => severity === 'note').map(({ id }) => id)
  // The limit of memory is a choice of the file.
  expect([...new Set(notes)].toSorted()).toEqual(['redis/eviction-policy', 'redis/machines'])
  // The servers have read the file.
  const ops = `redis://ops:change-this-too@${servers.nodes[0]!.host}:${servers.nodes[0]!.port}`
  const operator = new Redis(ops)
  expect(await operator.config('GET', 'tcp-keepalive')).toEqual(['tcp-keepalive', '60'])
  expect(await operator.config('GET', 'save')).toEqual(['save', ''])
  operator.disconnect()
  await locks.close()
})

test('the user of the page may hold, wait, share and be woken, and nothing else', async () => {
  const locks = createLocks(redlock(clients, { prefix: 'lock:' }), { wait: '10s' })
  const others = createLocks(redlock(clients, { prefix: 'lock:' }), { wait: '10s' })
  const first = await locks.acquire('order:42')
  const next = others.acquire('order:42')
  await until(async () => (await locks.status('order:42'))?.waiters === 1, { what: 'it stands in line' })
  await first.release()
  const second = await next
  expect(second.token).toBeGreaterThan(first.token)
  await second.release()
  await locks.using('order:42', { shared: true }, async (lease) => expect(lease.held).toBe(true))
  for (const command of [['FLUSHALL'], ['CONFIG', 'SET', 'maxmemory', '1'], ['GET', 'other'], ['KEYS', '*']])
    await expect(clients[0]!.call(...(command as [string]))).rejects.toThrow(/NOPERM/)
  await Promise.all([locks.close(), others.close()])
})

test('the user for a store of runs keeps them; the user of the locks is told which rights it lacks', async () => {
  const [, line = ''] = /<!-- store\.acl -->\n```\nuser (.*)\n```/.exec(read('deploying.md')) ?? []
  const place = `${servers.nodes[1]!.host}:${servers.nodes[1]!.port}`
  const operator = new Redis(`redis://ops:change-this-too@${place}`)
  await operator.call('ACL', 'SETUSER', ...line.split(' '))
  const once = ['run', '--once', 'nightly', '--', 'true']
  const as = (user: string): { env: Record<string, string> } => ({
    env: { RINGFENCE_STORE: `redis://${user}:change-this@${place}` },
  })
  const refused = await home.run(once, as('app'))
  expect(refused.stderr).toMatch(
    /the run was not recorded, because this user lacks \+hexists \+hdel\n {2}next: .*\+hdel/,
  )
  expect(await home.run(once, as('store'))).toMatchObject({ code: 0, stderr: '' })
  expect((await home.run(['runs', 'nightly'], as('store'))).stdout).toContain(' done ')
  // As a guard that a program has.
  const client = new Redis(`redis://store:change-this@${place}`)
  const effect = redisGuard(client).once(
    { resources: ['a'], token: 1n, engine: 'e' },
    'k',
    { script: '' },
    { keep: '1d' },
  )
  expect(await effect).toMatchObject({ ran: true })
  client.disconnect()
  operator.disconnect()
})

test('a durable node that restarts votes again as soon as a client uses it', async () => {
  await servers.nodes[0]!.restart()
  const locks = createLocks(redlock(clients, { prefix: 'lock:' }), { wait: '10s' })
  const used = async (): Promise<string[]> => {
    await (await locks.acquire('after-restart')).release()
    return unfit(locks)
  }
  await expect.poll(used, { interval: 500 }).toEqual([])
  await locks.close()
})

test.each([
  { rights: '', kept: null },
  { rights: ' ~* &* +@all', kept: 'a lease' },
])('a server whose user default is off with the rights "$rights" starts with $kept', async ({ rights, kept }) => {
  const users = serverFile(`default${rights.length}.acl`, `user default off${rights}\nuser ops on >any ~* &* +@all\n`)
  await using server = await startRedis({ durable: true, args: ['--aclfile', users] })
  const client = new Redis(`redis://ops:any@${server.host}:${server.port}`)
  client.on('error', () => undefined)
  await client.eval(
    `redis.call('SET', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[2], 1)`,
    2,
    'lock',
    'fence',
    'a lease',
  )
  await client.set('plain', 'kept')
  await server.restart()
  expect(await client.mget('plain', 'lock')).toEqual(['kept', kept])
  client.disconnect()
})

test('the commands of the page about a stuck lock do what it says', async () => {
  const commands = [...read('stuck.md').matchAll(/<!-- tried -->\n```sh\nringfence (.*)\n```/g)].map((match) =>
    match[1]!.split(' '),
  )
  const [look, release, check] = commands
  expect(commands).toHaveLength(3)
  const holder = home.start(
    [
      'run',
      '--ttl',
      '6s',
      '--label',
      'nightly',
      '--note',
      'dump of app',
      'backup',
      '--',
      'sh',
      '-c',
      'echo ready; exec sleep 60',
    ],
    { env },
  )
  await holder.printed(/ready/)
  const shown = await home.run(look!, { env })
  expect(shown).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/\nbackup +nightly \(dump of app\) +\d+ /) as string,
  })
  // Without a terminal there is nobody to ask.
  expect(await home.run([...release!, '--yes'], { env })).toMatchObject({ code: 0 })
  expect(await home.run(check!, { env })).toMatchObject({
    code: EXIT.no,
    stdout: expect.stringMatching(/^'backup' is free on /) as string,
  })
  expect(await holder.ended).toMatchObject({ code: EXIT.lost })
})
