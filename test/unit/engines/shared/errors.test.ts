import { expect, test } from 'vitest'
import { engineErrorFrom } from '../../../../src/engines/shared/errors.ts'
import { EngineError } from '../../../../src/errors.ts'

test('a failure becomes an EngineError that names the engine and keeps the cause', () => {
  const cause = new Error('connection refused')
  const error = engineErrorFrom(cause, 'etcd', ['a'])
  expect(error).toBeInstanceOf(EngineError)
  expect(error).toMatchObject({ message: 'etcd: connection refused', resources: ['a'], cause, transient: true })
})

test('what no retry cures is not transient, and the message can be another one', () => {
  const error = engineErrorFrom('no permission', 'etcd', [], { isPermanent: true, message: 'Log in first.' })
  expect(error).toMatchObject({ message: 'etcd: Log in first.', cause: 'no permission', transient: false })
})

test('an EngineError stays as it is', () => {
  const error = new EngineError('etcd: closed', ['a'], { transient: false })
  expect(engineErrorFrom(error, 'etcd', ['b'])).toBe(error)
})
