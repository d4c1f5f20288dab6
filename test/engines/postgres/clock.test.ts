import type { Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { postgres } from '../../../src/engines/postgres/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { until } from '../../../harness/until.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { openPool } from './clients.ts'

const canShift = isAvailable('clock-shift')
let server: PostgresServer
let pool: Pool
let engine: Engine

beforeAll(async () => {
  server = await startPostgres({ clockShift: canShift })
  pool = openPool({ connectionString: server.url })
  engine = postgres(pool)
  await engine.init!()
})

beforeEach(({ skip }) => skip(!canShift, 'no C compiler, so no library that shifts clocks'))

afterAll(async () => {
  await engine.close()
  await pool.end()
  await server.stop()
})

test('a clock that is far off from ours does not matter', async () => {
  server.shiftClock(-3_600_000)
  const lease = await grant(engine, { ttlMs: 10_000 })
  const refusal = await engine.acquire(request({ resources: lease.resources }))
  expect(refusal).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect(refusal).toHaveProperty('remainingMs', expect.closeTo(9600, -3))
  expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
  server.shiftClock(0)
})

test('a clock that jumps ahead ends leases too early: a second holder, with a greater token, and the first one hears', async () => {
  const locks = createLocks(engine, { ttl: '6s' })
  const lease = await locks.acquire('jump')
  server.shiftClock(7000)
  const second = await grant(engine, { resources: ['jump'] })
  // This is what no lease can help, and why the store should check the token.
  expect(lease.held).toBe(true)
  expect(second.token).toBeGreaterThan(lease.token)
  await until(() => lease.signal.aborted, { what: 'the loss' })
  expect(lease.signal.reason).toMatchObject({ reason: 'stolen' })
  server.shiftClock(0)
})

test('a clock that is set back makes leases last longer, and tokens go on growing', async () => {
  server.shiftClock(0)
  const lease = await grant(engine, { ttlMs: 1000 })
  server.shiftClock(-60_000)
  const refusal = await engine.acquire(request({ resources: lease.resources }))
  expect(refusal).toHaveProperty('remainingMs', expect.closeTo(60_600, -3))
  expect((await engine.release(lease)).ours).toBe(true)
  const next = await grant(engine, { resources: lease.resources })
  expect(next.token).toBe(lease.token + 1n)
  const handed = await engine.handOver!(next, request({ resources: lease.resources }))
  expect(handed).toEqual({ kind: 'granted', token: lease.token + 2n })
  server.shiftClock(0)
})

test('the doctor sees a clock that moves against ours while it looks', async () => {
  const other = postgres({
    async query(text: string, params: string[]) {
      const result = await pool.query(text, params)
      server.shiftClock((shiftedMs += 100))
      return result
    },
  })
  let shiftedMs = 0
  const findings = await other.check(30_000)
  expect(findings).toContainEqual(expect.objectContaining({ id: 'postgres/clock-speed', severity: 'critical' }))
  server.shiftClock(3_600_000)
  expect(await engine.check(30_000)).toContainEqual(
    expect.objectContaining({
      id: 'postgres/clock',
      severity: 'note',
      found: expect.stringMatching(/3(59|60)\d{4} ms \(.*\) ahead/) as string,
    }),
  )
  server.shiftClock(0)
})
