import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startWorker } from '../harness/child.ts'
import { freePorts } from '../harness/ports.ts'
import { isGone, isStopped, processTree } from '../harness/process-tree.ts'
import { startRedis } from '../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../harness/temporary-folder.ts'
import { until } from '../harness/until.ts'
import { redisGuard } from '../src/guards/index.ts'
import { isType, type Message } from './process/setup.ts'
import { keysOf, othersOn, running } from './frameworks-setup.ts'

const root = path.resolve(import.meta.dirname, '..')
const run = promisify(execFile)

const HANDLERS = ['express.mjs', 'fastify.mjs', 'web/serve.mjs']

test.each(HANDLERS)(
  '%s: 200 under a lease, 423 with Retry-After while it is held, 409 if the store refuses the token, 503 in an outage',
  async (example) => {
    await using server = await startRedis()
    await using others = othersOn(server)
    const [port = 0] = await freePorts(1)
    const env = { REDIS_URL: server.url, PORT: String(port), WAIT: '500ms' }
    await using service = await running(`examples/frameworks/${example}`, env, 'listening')
    const charge = (id: number, signal?: AbortSignal): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/orders/${id}/charge`, { method: 'POST', signal: signal ?? null })

    const first = await charge(1)
    expect([first.status, await first.json()]).toEqual([200, { charged: '1', token: expect.stringMatching(/^\d+$/) }])

    const inTheWay = await others.locks.acquire('order:1', { ttl: '20s', renew: false })
    const locked = await charge(1)
    expect([locked.status, await locked.json()]).toEqual([423, { error: 'locked' }])
    const seconds = Number(locked.headers.get('retry-after'))
    expect(seconds).toBeGreaterThan(Math.floor(inTheWay.remaining() / 1000))
    expect(seconds).toBeLessThanOrEqual(20)
    await inTheWay.release()

    // Whoever has a greater token was there first, as if this process had been paused.
    const newer = { resources: ['order:2'], token: 1n << 60n, engine: 'redis:' }
    await redisGuard(others.client).enter(newer)
    const refused = await charge(2)
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([409, null])
    expect(await refused.json()).toEqual({ error: 'lost the lock' })
    expect(await keysOf(server)).toEqual(['{order:1}:state'])

    await server.kill()
    const outage = await charge(1)
    expect([outage.status, outage.headers.get('retry-after')]).toEqual([503, '1'])
    await server.restart()
    await until(async () => (await charge(1)).status === 200, { what: 'the service has recovered' })

    expect(await service.end()).toEqual({ code: 0, output: 'listening\n' })
    expect(await keysOf(server)).toEqual(['{order:1}:state'])
  },
)

test.each(HANDLERS)('%s: the wait of a client that goes away is over at once', async (example) => {
  await using server = await startRedis()
  await using others = othersOn(server)
  const [port = 0] = await freePorts(1)
  const env = { REDIS_URL: server.url, PORT: String(port), WAIT: '10m' }
  await using service = await running(`examples/frameworks/${example}`, env, 'listening')
  const lease = await others.locks.acquire('order:1')
  const waiting = async (): Promise<number> => (await others.locks.status('order:1'))?.waiters ?? 0

  // Not by `fetch`: it opens another connection after an abort, and the service would wait for that at its end.
  const client = request({ port, path: '/orders/1/charge', method: 'POST', agent: false }).end()
  const hungUp = once(client, 'error')
  await until(async () => (await waiting()) === 1, { what: 'the handler waits' })
  client.destroy(new Error('changed my mind'))
  await hungUp
  await until(async () => (await waiting()) === 0, { what: 'nobody waits' })
  expect(lease.held).toBe(true)
  expect(await service.end()).toEqual({ code: 0, output: 'listening\n' })
})

test('bullmq.mjs: the worker that was stopped in the middle of a job is refused, and the invoice is sent once', async () => {
  await using server = await startRedis()
  const { stdout, stderr } = await run(process.execPath, ['examples/frameworks/bullmq.mjs'], {
    cwd: root,
    env: { ...process.env, REDIS_URL: server.url, NODE_OPTIONS: '' },
    timeout: 50_000,
  })
  expect(stdout.split('\n')).toEqual([
    'first worker renders the invoice',
    'the first worker stands still',
    'second worker renders the invoice',
    'second worker has sent it',
    'the job is done: sent',
    'first worker was refused: STALE_TOKEN',
    'sent by the second worker',
    '',
  ])
  expect(stderr).not.toMatch(/Error/)
  expect(await keysOf(server)).toEqual([])
})

test('bullmq.mjs: leaves nothing behind when a worker dies in the middle', async () => {
  await using server = await startRedis()
  await using example = await running('examples/frameworks/bullmq.mjs', { REDIS_URL: server.url }, 'stands still')
  const tree = await until(() => [processTree(example.pid)].find(({ length }) => length === 3), {
    what: 'both workers',
  })
  const first = tree.slice(1).find(isStopped)!
  process.kill(first, 'SIGKILL')
  const { code, output } = await example.ended
  expect(code).toBe(1)
  expect(output).toContain('Error: the first worker has ended: SIGKILL')
  expect(await keysOf(server)).toEqual([])
  expect(tree.filter((pid) => !isGone(pid))).toEqual([])
})

test('web/locked.mjs: a process that is frozen in the middle is refused, between two requests it holds nothing', async () => {
  await using server = await startRedis()
  await using others = othersOn(server)
  const guard = redisGuard(others.client)
  const file = new URL('./process/workers/route.mjs', import.meta.url)
  await using worker = startWorker<Message>(file, { env: { REDIS_URL: server.url, TTL: '1s' } })
  await worker.next(isType('ready'))

  worker.send({ type: 'request', path: '/quick' })
  expect(await worker.next(isType('answered'))).toMatchObject({ status: 200 })
  await worker.pause()
  await (await others.locks.acquire('order:1')).release() // at once: it does not wait
  await worker.resume()

  worker.send({ type: 'request', path: '/slow' })
  await worker.next(isType('inside'))
  await worker.pause()
  await others.locks.using('order:1', { wait: '30s' }, (lease) => guard.set(lease, '{order:1}:state', 'newer'))
  worker.send({ type: 'go on' })
  await worker.resume()
  expect(await worker.next(isType('answered'))).toMatchObject({ status: 409 })
  expect(await others.client.get('{order:1}:state')).toBe('newer')

  worker.send({ type: 'keep' })
  await worker.next(isType('keeps'))
  await worker.pause()
  await others.locks.using('order:2', { wait: '30s' }, async () => undefined)
  worker.send({ type: 'look' })
  await worker.resume()
  expect(await worker.next(isType('looked'))).toMatchObject({ held: false })
  expect(await worker.next(isType('aborted'))).toMatchObject({ code: 'LEASE_LOST' })
})

/** A project as a user has it, with the package and what the examples need among its modules. */
function project(modules: readonly string[]): string {
  const folder = createFolder('project')
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }')
  for (const name of modules) {
    const link = path.join(folder, 'node_modules', name)
    mkdirSync(path.dirname(link), { recursive: true })
    symlinkSync(name === 'ringfence' ? root : path.join(root, 'node_modules', name), link)
  }
  return folder
}

test.each(['nodenext', 'commonjs'])(
  'nestjs, module %s: the decorator takes the lock of the arguments, the end of the application gives it back',
  async (module) => {
    await using server = await startRedis()
    const folder = project(['ringfence', 'ioredis', 'reflect-metadata', 'rxjs', '@nestjs/common', '@nestjs/core'])
    if (module === 'commonjs') writeFileSync(path.join(folder, 'package.json'), '{ "type": "commonjs" }')
    const compiler = path.join(root, 'node_modules/.bin/tsc')
    await run(compiler, ['-p', path.join(root, 'examples/frameworks/nestjs'), '--module', module, '--outDir', folder])
    {
      await using service = await running(path.join(folder, 'main.js'), { REDIS_URL: server.url }, 'importing')
      expect(await server.cli('EXISTS', 'import')).toBe('1')
      const { output } = await service.end()
      expect(output.split('\n')).toEqual([
        'Ada: order 42, 0 others at work, holds order:42',
        'Bob: order 42, 0 others at work, holds order:42',
        'refused: HELD',
        "lockName: after 'order:': expected a text or a number, got undefined",
        'refunded 8, held order:8',
        "@Locked('order:{id}'): {id}: expected a text or a number, got undefined",
        'importing',
        "the lease on 'import' is over: its locks were closed",
        '',
      ])
    }
    expect(await keysOf(server)).toEqual([])
    // Not as a name of its own: all orders would share one lock.
    const locked = `require('./locks-module.js').Locked('order:{id.a}')({}, 'charge', { value() {} })`
    const wrong = run(process.execPath, ['-r', 'reflect-metadata', '-e', locked], { cwd: folder })
    await expect(wrong).rejects.toThrow("@Locked('order:{id.a}'): expected braces around the name of a parameter only")
    removeFolder(folder)
  },
)

test('vitest: the tests of code that uses locks pass, an hour of them in no time', async () => {
  const vitest = path.join(root, 'node_modules/.bin/vitest')
  const args = ['run', '--root', path.join(root, 'examples/frameworks/vitest'), '--reporter', 'json']
  const { stdout } = await run(vitest, args, { cwd: root, env: { ...process.env, NODE_OPTIONS: '' } })
  expect(JSON.parse(stdout)).toMatchObject({ numTotalTests: 4, numPassedTests: 4, success: true })
})

test('jest: the tests of code that uses locks pass, by `require`', async () => {
  const folder = project(['ringfence'])
  cpSync(path.join(root, 'examples/frameworks/jest'), folder, { recursive: true })
  const jest = [path.join(root, 'node_modules/jest/bin/jest.js'), '--rootDir', folder, '--no-watchman', '--no-cache']
  const args = [...jest, '--testMatch', '**/*.test.cjs', '--runInBand', '--json']
  const { stdout } = await run(process.execPath, args, { cwd: folder, env: { ...process.env, NODE_OPTIONS: '' } })
  expect(JSON.parse(stdout)).toMatchObject({ numTotalTests: 4, numPassedTests: 4, success: true, openHandles: [] })
  removeFolder(folder)
})
