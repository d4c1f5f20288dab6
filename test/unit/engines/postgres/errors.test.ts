import { describe, expect, test } from 'vitest'
import { AnswerError } from '../../../../src/engines/shared/sql/client.ts'
import { isRaced, PoolerError, sqlState, failureKind } from '../../../../src/engines/postgres/errors.ts'

function failure(code: string, more: object = {}): Error {
  return Object.assign(new Error(`failed with ${code}`), { code, ...more })
}

describe('what an error of PostgreSQL or of the way there means', () => {
  test.each([
    ['40001', 'again'],
    ['40P01', 'again'],
    ['55P03', 'again'],
    ['42P01', 'no table'],
    ['42501', 'never'],
    ['28P01', 'never'],
    ['3D000', 'never'],
    ['22P05', 'never'],
    ['25006', 'undone'],
    ['53300', 'undone'],
    ['57014', 'undone'],
    ['57P01', 'unknown'],
    ['08006', 'unknown'],
    ['40003', 'unknown'],
    ['ECONNRESET', 'unknown'],
    ['CONNECTION_CLOSED', 'unknown'],
    ['EPIPE', 'unknown'],
  ])('%s: %s', (code, expected) => {
    expect(failureKind(failure(code))).toBe(expected)
  })

  test('without a connection nothing was sent, on any of the addresses', () => {
    const refused = failure('ECONNREFUSED', { syscall: 'connect' })
    expect(failureKind(refused)).toBe('undone')
    expect(failureKind(failure('ENOTFOUND', { syscall: 'getaddrinfo' }))).toBe('undone')
    expect(failureKind(new AggregateError([refused, refused]))).toBe('undone')
    expect(failureKind(new AggregateError([refused, failure('ECONNRESET')]))).toBe('unknown')
    expect(failureKind(new AggregateError([]))).toBe('unknown')
  })

  test('a pooler and a client that is none stay what they are', () => {
    expect(failureKind(new PoolerError('x'))).toBe('never')
    expect(failureKind(new AnswerError('x'))).toBe('never')
  })

  test('anything else may have been done', () => {
    for (const odd of [
      'text',
      undefined,
      null,
      new Error('Query read timeout'),
      Object.assign(new Error('x'), { code: 7 }),
    ])
      expect(failureKind(odd)).toBe('unknown')
  })
})

test('a code of the system is no SQLSTATE, even with five letters', () => {
  expect(sqlState(failure('EPIPE'))).toBeUndefined()
  expect(sqlState(failure('XX000'))).toBe('XX000')
  expect(sqlState({ code: '40001' })).toBeUndefined()
})

test('only our own words tell of a lost race', () => {
  expect(isRaced(failure('22P02'))).toBe(false)
  const raced = Object.assign(new Error('invalid input syntax for type bigint: "ringfence: taken meanwhile: a"'), {
    code: '22P02',
  })
  expect(isRaced(raced)).toBe(true)
})
