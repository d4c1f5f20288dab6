import { expect, test } from 'vitest'
import { program, server } from '../../harness/binaries.ts'
import { innerRun } from '../../harness/inner-run.ts'

/** Neither runtime tells how long its garbage collector took. */
const PAUSES = 'pauses of the process are seen, those of the garbage collector among them'

/** Each with what fails there. The reasons are in docs/runtimes.md; a test that passes one day is one to be taken off. */
const RUNTIMES = [
  ['node-20', '"$RUNTIME"', []],
  ['node', '"$RUNTIME"', []],
  ['node-24', '"$RUNTIME"', []],
  ['node-26', '"$RUNTIME"', []],
  [
    'bun',
    '"$RUNTIME" --bun',
    [
      PAUSES,
      // `os.homedir` of Bun does not see a HOME that the process itself has set.
      'the path is by default in the folder for the state of programs',
      'the path must be given where there is no home folder',
    ],
  ],
  ['deno', '"$RUNTIME" run -A', [PAUSES]],
] as const

// One after the other: each keeps the machine busy by itself.
test.for(RUNTIMES)('the unit tests pass on %s', { timeout: 300_000 }, async ([name, start, failing], { signal }) => {
  const env = { RUNTIME: program(name).path, RUNTIME_VERSION: server(name).version }
  const { passed, failed } = await innerRun(start, '--config test/runtimes/vitest.config.ts', env, signal)
  expect(failed.toSorted()).toEqual([...failing].toSorted())
  expect(passed).toBeGreaterThan(1700)
})
