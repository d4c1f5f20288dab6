import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { startRedis } from '../harness/servers/redis.ts'
import { until } from '../harness/until.ts'
import { redisGuard } from '../src/guards/index.ts'
import { keysOf, othersOn, running } from './frameworks-setup.ts'

const root = path.resolve(import.meta.dirname, '..')
const run = promisify(execFile)

/** Where `npm run test:versions -- next` has installed it. `npm test` does not: docs/decisions/0025-testing-is-an-entry-point.md says why. */
const installed = process.env['RINGFENCE_NEXT']
const OFFLINE = { NEXT_TELEMETRY_DISABLED: '1', NODE_OPTIONS: '' }

/** An application of Next.js whose one route is the example, with the built package. It finds Next.js in the folder around it. */
async function build(): Promise<string> {
  const app = mkdtempSync(path.join(installed!, 'app-'))
  onTestFinished(() => rmSync(app, { recursive: true }))
  for (const name of ['package.json', 'dist'])
    cpSync(path.join(root, name), path.join(app, 'node_modules/ringfence', name), { recursive: true })
  const order = path.join(app, 'app/orders/[id]')
  mkdirSync(path.join(order, 'charge'), { recursive: true })
  const frameworks = path.join(root, 'examples/frameworks')
  cpSync(path.join(frameworks, 'answer.mjs'), path.join(order, 'answer.mjs'))
  cpSync(path.join(frameworks, 'web/locked.mjs'), path.join(order, 'charge/locked.mjs'))
  cpSync(path.join(frameworks, 'web/route.mjs'), path.join(order, 'charge/route.js'))
  writeFileSync(path.join(app, 'package.json'), '{ "private": true, "type": "module" }')
  await run(process.execPath, [next(), 'build'], { cwd: app, env: { ...process.env, ...OFFLINE } })
  return app
}

const next = (): string => path.join(installed!, 'node_modules/next/dist/bin/next')

test.runIf(installed !== undefined)(
  'Next.js, built and started: 200 under a lease, 423 with Retry-After while it is held, 409 if the store refuses the token',
  { timeout: 600_000 },
  async () => {
    const cwd = await build()
    await using server = await startRedis()
    await using others = othersOn(server)
    const [port = 0] = await freePorts(1)
    const env = { ...OFFLINE, NODE_ENV: 'production', REDIS_URL: server.url, WAIT: '3s' }
    const args = ['start', '--port', String(port), '--hostname', '127.0.0.1']
    await using _service = await running(next(), env, 'Ready', { cwd, args })
    const charge = (id: number): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/orders/${id}/charge`, { method: 'POST' })

    await until(async () => (await charge(1)).status === 200, { what: 'the route reaches Redis' })
    const charged = await charge(1)
    expect([charged.status, await charged.json()]).toEqual([200, { charged: '1', token: expect.any(String) as string }])

    const inTheWay = await others.locks.acquire('order:1')
    const refused = await charge(1)
    expect(refused.status).toBe(423)
    const seconds = Number(refused.headers.get('retry-after'))
    expect(seconds).toBeGreaterThan(0)
    expect(seconds).toBeLessThanOrEqual(30)
    // Another order is not in the way.
    expect((await charge(2)).status).toBe(200)
    await inTheWay.release()
    expect((await charge(1)).status).toBe(200)

    await redisGuard(others.client).enter({ resources: ['order:2'], token: 1n << 60n, engine: 'redis:' })
    const stale = await charge(2)
    expect([stale.status, stale.headers.get('retry-after')]).toEqual([409, null])
    expect((await keysOf(server)).sort()).toEqual(['{order:1}:state', '{order:2}:state'])
  },
)
