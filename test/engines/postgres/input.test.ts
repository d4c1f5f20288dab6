import { PGlite } from '@electric-sql/pglite'
import { Client, Pool } from 'pg'
import postgresJs from 'postgres'
import { expect, test } from 'vitest'
import {
  postgres,
  postgresAdvisory,
  postgresSchema,
  type PostgresLike,
  type PostgresOptions,
} from '../../../src/engines/postgres/index.ts'

const client = { query: async () => ({ rows: [] }) }

test.each<[string, unknown, string]>([
  ['table', 'a b', "table: expected a name such as 'ringfence_leases' or 'schema.ringfence_leases'"],
  ['table', 'a.b.c', 'table: expected a name'],
  ['table', '', 'table: expected a name'],
  ['table', 'x"; DROP TABLE y; --', 'table: expected a name'],
  ['table', 'x'.repeat(64), 'table: expected a name'],
  ['table', 42, 'of letters, digits, _ and $, got 42'],
  ['createTable', 'yes', "createTable: expected true or false, got 'yes'"],
  ['listen', null, 'listen: expected true or false, got null'],
  ['requestTimeout', 0, 'requestTimeout: expected 1 ms to 60 s, got 0'],
  ['requestTimeout', 'soon', "got 'soon'"],
  ['drift', 0.6, 'drift: expected a part of the ttl from 0 to 0.5, got 0.6'],
  ['drift', '1%', "drift: expected a part of the ttl from 0 to 0.5, got '1%'"],
  ['tabel', 'x', "options: expected table, createTable, requestTimeout, drift, clock, random, listen, got 'tabel'"],
])('a bad option is named: %s: %j', (name, value, message) => {
  const options = { [name]: value } as PostgresOptions
  expect(() => postgres(client, options)).toThrow(message)
  expect(() => postgresAdvisory(async () => client, options)).toThrow(message)
})

test('options that are none are named', () => {
  expect(() => postgres(client, null as never)).toThrow('options: expected an object, got null')
  expect(() => postgresAdvisory(async () => client, 'x' as never)).toThrow("options: expected an object, got 'x'")
})

test.each<[string, unknown]>([
  ['undefined', undefined],
  ['null', null],
  ['an object', {}],
  ["'postgres://localhost'", 'postgres://localhost'],
])('a client that is none is named: %s', (shown, value) => {
  expect(() => postgres(value as PostgresLike)).toThrow(
    new RegExp(`^client: expected a Pool or Client of pg, .* got ${shown}$`),
  )
})

test('a client that was closed is not taken', async () => {
  const pool = new Pool()
  await pool.end()
  expect(() => postgres(pool)).toThrow('client: expected one that can be used, but the pool was ended')
  const db = await PGlite.create()
  await db.close()
  expect(() => postgres(db)).toThrow('client: expected one that can be used, but the database was closed')
})

test('the drivers’ own types fit', async () => {
  const engines = [postgres(new Pool()), postgres(new Client()), postgres(postgresJs({ max: 1 }))]
  expect(engines.map(({ name }) => name)).toEqual(['postgres', 'postgres', 'postgres'])
  for (const engine of engines) await engine.close()
})

test('a client whose answers are no rows is refused for good', async () => {
  const request = { resources: ['a'], owner: 'o', ttlMs: 1000 }
  for (const answer of [undefined, { rows: 'x' }, [{}], 42]) {
    const engine = postgres({ query: async () => answer })
    await expect(engine.acquire(request)).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    await engine.close()
  }
})

test('the schema names the table, quoted', () => {
  expect(postgresSchema()).toMatch(/^CREATE TABLE IF NOT EXISTS "ringfence_leases" \(/)
  expect(postgresSchema('Jobs.Leases')).toMatch(/^CREATE TABLE IF NOT EXISTS "Jobs"."Leases" \(/)
  expect(() => postgresSchema('a;b')).toThrow('table: expected a name')
})
