import { expect, test } from 'vitest'
import { AnswerError } from '../../../../src/engines/shared/sql/client.ts'
import { AutocommitError, isRaced, failureKind } from '../../../../src/engines/mariadb/errors.ts'

function failure(errno: number, more: object = {}): Error {
  return Object.assign(new Error(`failed with ${errno}`), { errno, ...more })
}

test.each([
  [1213, 'again'],
  [1205, 'again'],
  [1020, 'again'],
  [1146, 'no table'],
  [1142, 'never'],
  [1045, 'never'],
  [1290, 'undone'],
  [1040, 'undone'],
  [45_028, 'undone'],
  [1053, 'unknown'],
  [1927, 'unknown'],
  [2013, 'unknown'],
  [-104, 'unknown'],
] as const)('%d: %s', (errno, expected) => {
  expect(failureKind(failure(errno))).toBe(expected)
})

test('the number is also found in the cause of an error of software around the driver', () => {
  expect(failureKind(new Error('query failed', { cause: failure(1213) }))).toBe('again')
})

test('without a connection nothing was sent; without a number anything may have happened', () => {
  expect(failureKind(failure(-111, { syscall: 'connect' }))).toBe('undone')
  expect(failureKind(new Error('closed'))).toBe('unknown')
  expect(failureKind('text')).toBe('unknown')
})

test('a client that is none, and one without autocommit, stay what they are', () => {
  expect(failureKind(new AnswerError('x'))).toBe('never')
  expect(failureKind(new AutocommitError())).toBe('never')
})

test('only a sum that goes over tells of a lost race', () => {
  expect(isRaced(failure(1690))).toBe(true)
  expect(isRaced(failure(1213))).toBe(false)
})
