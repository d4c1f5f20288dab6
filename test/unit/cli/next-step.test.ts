import { expect, test } from 'vitest'
import { nextStep } from '../../../src/cli/next-step.ts'
import { EngineError } from '../../../src/index.ts'

test.each([
  ['the file engine needs SQLite: run `npm install libsql`', 'install it as said, or name an engine with a server'],
  ['/x/locks.db cannot be opened for writing: EACCES: permission denied', 'name a file that this user may write to'],
])('%s', (message, next) => {
  expect(nextStep(new EngineError(message, [], { transient: false }))).toContain(next)
})
