import { expect, test } from 'vitest'
import { nextStep } from '../../../src/cli/next-step.ts'
import { EngineError, QuorumError } from '../../../src/index.ts'

test('the doctor looks at the same engine: an option that named it is part of the advice', () => {
  const error = new EngineError('no answer', [])
  expect(nextStep(error)).toContain('`ringfence doctor` looks closer')
  expect(nextStep(error, ' --engine redis://a')).toContain('`ringfence doctor --engine redis://a` looks closer')
})

test.each([
  ['the file engine needs SQLite: run `npm install libsql`', 'install it as said, or name an engine with a server'],
  [
    'postgres: permission denied for schema locks; the table can be created by hand: CREATE TABLE …',
    'run `ringfence init` with the URL of a user that may create tables',
  ],
  [
    "mariadb: CREATE command denied to user 'app'@'localhost' for table `locks`.`leases`; the table can be created by hand:\nCREATE TABLE …",
    'run `ringfence init` with the URL of a user that may create tables',
  ],
  ['postgres: permission denied for table leases', 'give this user the rights that it lacks'],
  ['/x/locks.db cannot be opened for writing: EACCES: permission denied', 'name a file that this user may write to'],
  [
    'no quorum (a: NOPERM: this user may not use some key of locks: is the prefix option missing',
    '?prefix=… in the URL',
  ],
])('%s', (message, next) => {
  expect(nextStep(new EngineError(message, [], { transient: false }))).toContain(next)
})

test.each([
  [['a'], [], /^wait until these nodes may vote again; /],
  [['a'], ['b', 'c'], /^bring b, c back, or wait until those that sit out may vote again; /],
  [['a'], ['b', 'c', 'd'], /^bring b, c, d back; /],
])('of five nodes %j sits out, and %j do not answer', (out, silent, next) => {
  const nodes = [
    ...out.map((node) => ({
      node,
      cause: new Error('restarted and may have forgotten leases: sits out for 9 s more'),
    })),
    ...silent.map((node) => ({ node, cause: new Error('no answer within 2000 ms') })),
  ]
  expect(nextStep(new QuorumError(['order'], { quorum: 3, size: 5, nodes }))).toMatch(next)
})
