import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { isAvailable } from '../../harness/binaries.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { until } from '../../harness/until.ts'

test.concurrent('postgres keeps committed rows across a crash and loses them when restarted empty', async () => {
  await using server = await startPostgres()
  await server.sql('CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)')
  await server.kill()
  await expect(server.sql('SELECT 1')).rejects.toThrow('Connection refused')
  await server.restart()
  expect(await server.sql('SELECT a, a * 10 FROM t ORDER BY a')).toBe('1|10\n2|20')
  await server.restart({ empty: true })
  await expect(server.sql('SELECT * FROM t')).rejects.toThrow('does not exist')
})

test.concurrent('a frozen postgres freezes the processes of its connections too', async () => {
  await using server = await startPostgres()
  const asleep = server.sql('SELECT pg_sleep(3600)').catch(String)
  const findBackend = `SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)'`
  const backend = await until(() => server.sql(findBackend), { what: 'the connection' })
  await server.freeze()
  expect(readFileSync(`/proc/${backend}/stat`, 'utf8')).toMatch(/\) T /)
  await server.thaw()
  expect(readFileSync(`/proc/${backend}/stat`, 'utf8')).not.toMatch(/\) T /)
  await server.freeze()
  await server.stop()
  expect(await asleep).toContain('terminating connection')
})

test.concurrent('a clock-shifted postgres tells the shifted time', async ({ skip }) => {
  skip(!isAvailable('clock-shift'), 'no C compiler, so no library that shifts clocks')
  await using server = await startPostgres({ clockShift: true })
  server.shiftClock(3_600_000)
  const seconds = Number(await server.sql('SELECT extract(epoch FROM clock_timestamp())'))
  expect(seconds - Date.now() / 1000).toBeGreaterThan(3_590)
})

test.concurrent('the clock of a postgres stands still until it is set', async ({ skip }) => {
  skip(!isAvailable('clock-shift'), 'no C compiler, so no library that shifts clocks')
  await using server = await startPostgres({ clockShift: true })
  const shown = (): Promise<string> => server.sql('SELECT extract(epoch FROM clock_timestamp())')
  server.stopClock(1_700_000_000_000)
  expect([await shown(), await shown()]).toEqual(['1700000000.000000', '1700000000.000000'])
  server.stopClock(1_700_000_005_000.5)
  expect(await shown()).toBe('1700000005.000500')
})

test.concurrent('mariadb keeps committed rows across a crash and loses them when restarted empty', async () => {
  await using server = await startMariadb()
  await server.sql('CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)')
  await server.freeze()
  const waiting = server.sql('SELECT a, a * 10 FROM t ORDER BY a')
  await server.thaw()
  expect(await waiting).toBe('1\t10\n2\t20')
  await server.kill()
  await server.restart()
  expect(await server.sql('SELECT COUNT(*) FROM t')).toBe('2')
  await server.restart({ empty: true })
  await expect(server.sql('SELECT * FROM t')).rejects.toThrow("doesn't exist")
})

test.concurrent('a standalone mongodb keeps acknowledged writes across a crash', async () => {
  await using server = await startMongodb()
  await server.command({ insert: 't', documents: [{ _id: 1 }], writeConcern: { j: true } }, 'test')
  await server.freeze()
  const waiting = server.command({ find: 't' }, 'test')
  await server.thaw()
  expect(await waiting).toMatchObject({ cursor: { firstBatch: [{ _id: 1 }] } })
  await server.kill()
  await server.restart()
  expect(await server.command({ find: 't' }, 'test')).toMatchObject({ cursor: { firstBatch: [{ _id: 1 }] } })
  await server.restart({ empty: true })
  expect(await server.command({ find: 't' }, 'test')).toMatchObject({ cursor: { firstBatch: [] } })
})

test.concurrent('a replica set of one is primary again after a crash, and after a restart without data', async () => {
  await using server = await startMongodb({ replicaSet: true })
  expect(await server.command({ hello: 1 })).toMatchObject({ isWritablePrimary: true, setName: 'rs0' })
  await server.kill()
  await server.restart()
  expect(await server.command({ hello: 1 })).toMatchObject({ isWritablePrimary: true })
  await server.restart({ empty: true })
  expect(await server.command({ hello: 1 })).toMatchObject({ isWritablePrimary: true })
})
