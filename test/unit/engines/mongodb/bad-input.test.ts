import { MongoClient } from 'mongodb'
import { afterAll, expect, expectTypeOf, test } from 'vitest'
import { mongodb, type MongoDb } from '../../../../src/engines/mongodb/index.ts'

// Nobody is at this address, and nothing connects before the first request.
const client = new MongoClient('mongodb://127.0.0.1:1/')
const db = client.db('app')

afterAll(() => client.close())

test('the driver’s own Db is what the engine expects, without a cast', () => {
  expectTypeOf(db).toExtend<MongoDb>()
  expect(mongodb(db)).toMatchObject({ name: 'mongodb', identity: 'mongodb:app.ringfence' })
  expect(mongodb(db, { collection: 'locks' }).identity).toBe('mongodb:app.locks')
})

test.each([
  [undefined, 'db: expected an object, got undefined'],
  ['mongodb://127.0.0.1', "db: expected an object, got 'mongodb://127.0.0.1'"],
  [client, "db: expected a Db of the mongodb driver, as client.db('app') gives it, got a MongoClient"],
  [
    db.collection('locks'),
    "db: expected a Db of the mongodb driver, as client.db('app') gives it, got a Collection; name it with the option collection",
  ],
  [{}, "db: expected a Db of the mongodb driver, as client.db('app') gives it, got an object"],
])('what is no Db is refused: %#', (value, message) => {
  expect(() => mongodb(value as never)).toThrow(new TypeError(message))
})

test.each([
  [{ colection: 'x' }, TypeError, "options: expected collection, requestTimeout, drift, clock, got 'colection'"],
  [{ collection: 7 }, TypeError, 'collection: expected a string, got 7'],
  [{ collection: '' }, RangeError, "collection: expected a name that MongoDB allows, got ''"],
  [{ collection: 'a$b' }, RangeError, "collection: expected a name that MongoDB allows, got 'a$b'"],
  [{ collection: 'system.locks' }, RangeError, "collection: expected a name that MongoDB allows, got 'system.locks'"],
  [{ collection: 'ü'.repeat(126) }, RangeError, "collection: expected at most 255 bytes together with 'app.'"],
  [{ requestTimeout: 'soon' }, TypeError, 'requestTimeout: expected a number of milliseconds or a text'],
  [{ requestTimeout: 0 }, RangeError, 'requestTimeout: expected 1 ms to 60 s, got 0'],
  [{ drift: 0.6 }, RangeError, 'drift: expected a part of the ttl from 0 to 0.5, got 0.6'],
  [{ drift: '1%' }, RangeError, "drift: expected a part of the ttl from 0 to 0.5, got '1%'"],
])('options %j are refused', (options, kind, message) => {
  expect(() => mongodb(db, options as never)).toThrow(kind)
  expect(() => mongodb(db, options as never)).toThrow(message)
})

test('the allowance for clocks is what was asked for', () => {
  expect(mongodb(db).limits.driftMs(10_000)).toBe(102)
  expect(mongodb(db, { drift: 0.1 }).limits.driftMs(10_000)).toBe(1002)
})
