import { writeFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { Semaphore } from 'redis-semaphore'
import { expect, test } from 'vitest'
import { program } from '../../harness/binaries.ts'
import { Home, type Command } from '../../harness/command.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { redisGuard } from '../../src/guards/index.ts'
import { createLocks } from '../../src/locks.ts'

// What docs/migrating says of other tools: which of them see our leases, and which do not.

const STAYS = 'echo inside; read -r _'
const COMMAND = '"$NODE" "$RINGFENCE"'

/** Ends a command that stays until it gets a line. */
async function leave(command: Command): Promise<void> {
  command.type('go\n')
  command.endInput()
  expect((await command.ended).code).toBe(0)
}

test('flock and the command do not see each other; one inside of the other keeps out both kinds', async () => {
  await using home = new Home()
  const file = home.file('backup.lock')
  const both = `exec flock -n -E 99 ${file} ${COMMAND} run --no-wait backup -- true`

  const old = home.shell(`exec flock ${file} sh -c '${STAYS}'`)
  await old.printed(/inside/)
  const alone = await home.run(['run', '--no-wait', 'backup', '--', 'echo', 'too'])
  expect(alone).toMatchObject({ code: 0, stdout: 'too\n' })
  expect((await home.shell(both).ended).code).toBe(99)
  await leave(old)
  expect((await home.shell(both).ended).code).toBe(0)

  const next = home.start(['run', 'backup', '-c', STAYS])
  await next.printed(/inside/)
  expect((await home.shell(both).ended).code).toBe(193)
  await leave(next)
})

test('a script that locks itself runs once at a time', async () => {
  await using home = new Home()
  const line = `[ -n "$RINGFENCE_RESOURCE" ] || exec ${COMMAND} run --no-wait job -- "$0" "$@"`
  writeFileSync(home.file('job.sh'), `#!/bin/sh\n${line}\n${STAYS}\n`, { mode: 0o755 })
  const first = home.shell('exec ./job.sh')
  await first.printed(/inside/)
  expect((await home.shell('exec ./job.sh').ended).code).toBe(193)
  await leave(first)
})

test('consul lock and our leases do not see each other; one inside of the other keeps out both kinds', async () => {
  await using server = await startConsul()
  await using home = new Home({ RINGFENCE_URL: `consul://127.0.0.1:${server.port}` })
  const { path, env } = program('consul')
  const lock = (options: string, command: string): Command =>
    home.shell(`exec ${path} lock -http-addr=${server.url} ${options} ringfence/backup ${command}`, { env })

  const old = lock('-pass-stdin', `"${STAYS}"`)
  await old.printed(/inside/)
  expect(await server.call('GET', 'kv/ringfence/?keys')).toEqual(['ringfence/backup/.lock'])
  const alone = await home.run(['run', '--no-wait', 'backup', '--', 'echo', 'too'])
  expect(alone).toMatchObject({ code: 0, stdout: 'too\n' })
  expect((await lock('-timeout=100ms', 'true').ended).code).toBe(1)
  await leave(old)
  // The code of its command is not its own, unless it is asked for: then every failure is 2.
  expect((await lock('', '"exit 7"').ended).code).toBe(0)
  expect((await lock('-child-exit-code', '"exit 7"').ended).code).toBe(2)

  const next = home.start(['run', 'backup', '-c', STAYS])
  await next.printed(/inside/)
  const both = `'${COMMAND} run --no-wait backup -- true'`
  expect((await lock('-child-exit-code', both).ended).code).toBe(2)
  await leave(next)
  expect((await lock('-child-exit-code', both).ended).code).toBe(0)
})

test('keys of other libraries on Redis: which are locks to us, and which are in the way', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  const locks = createLocks(redis(client), { wait: 0 })
  try {
    // As the Redis store of verrou writes it, with and without a ttl.
    await client.set('timed', 'vslnz1fgr0f', 'PX', 20_000, 'NX')
    await client.setnx('endless', 'vslnz1fgr0f')
    await expect(locks.acquire('timed')).rejects.toMatchObject({ code: 'HELD' })
    await expect(locks.acquire('endless', { wait: '50ms' })).rejects.toMatchObject({ code: 'WAIT_TIMEOUT' })
    // And it does not get past ours.
    const lease = await locks.acquire('ours')
    expect(await client.set('ours', 'vslnz1fgr0f', 'PX', 20_000, 'NX')).toBeNull()
    await lease.release()

    // As Redisson writes it: a hash at the name itself.
    await client.hincrby('hash', '8743c9c0:1', 1)
    await expect(locks.acquire('hash')).rejects.toMatchObject({ code: 'ENGINE', message: /WRONGTYPE.*prefix/ })
    const apart = createLocks(redis(client, { prefix: 'lock:' }), { wait: 0 })
    expect(await apart.using('hash', async ({ resources }) => resources)).toEqual(['hash'])
    await apart.close()

    // A semaphore of redis-semaphore is a sorted set of its own.
    const theirs = new Semaphore(client, 'gpu', 1)
    await theirs.acquire()
    expect(await client.type('semaphore:gpu')).toBe('zset')
    expect(await locks.semaphore('gpu', 1).using(async ({ permit }) => permit)).toBe(0)
    await theirs.release()
  } finally {
    await locks.close()
    client.disconnect()
  }
})

test('from one engine to another with a guard: adopting refuses those who still hand in tokens of the old one', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  const before = createLocks(redis(client, { prefix: 'before:' }), { wait: 0 })
  const after = createLocks(redis(client, { prefix: 'after:' }), { wait: 0 })
  const guard = redisGuard(client)
  const write = (lease: Parameters<typeof guard.enter>[0], value: string): Promise<unknown> =>
    guard.set(lease, '{order:42}:state', value)
  try {
    await before.using('order:42', async (lease) => {
      await guard.enter(lease)
      await write(lease, 'first')
    })
    // Holding both keeps out those who hold either. The guard still gets the old token.
    await before.using('order:42', async (old) => {
      await after.using('order:42', { signal: old.signal }, async () => {
        await expect(before.acquire('order:42')).rejects.toMatchObject({ code: 'HELD' })
        await expect(after.acquire('order:42')).rejects.toMatchObject({ code: 'HELD' })
        await write(old, 'both')
      })
    })
    // The new engine alone, which adopts instead of entering, each time.
    for (const value of ['second', 'third']) {
      await after.using('order:42', async (lease) => {
        await guard.adopt(lease, 'redis:before:')
        await write(lease, value)
      })
    }
    await before.using('order:42', async (late) => {
      await expect(write(late, 'late')).rejects.toMatchObject({ code: 'FOREIGN_TOKEN' })
    })
    expect(await client.get('{order:42}:state')).toBe('third')
    // And back again.
    await before.using('order:42', async (lease) => {
      await guard.adopt(lease, 'redis:after:')
      await write(lease, 'back')
    })
    expect(await client.get('{order:42}:state')).toBe('back')
  } finally {
    await before.close()
    await after.close()
    client.disconnect()
  }
})
