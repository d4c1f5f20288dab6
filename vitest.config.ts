import { defineConfig } from 'vitest/config'
import { LongestFirst } from './test/longest-first.ts'
import SecretsReporter from './test/secrets-reporter.ts'

/** What needs neither a server nor a build. */
const UNIT = [
  'test/unit/**/*.test.ts',
  'test/tidy.test.ts',
  'test/documents.test.ts',
  'test/snippets.test.ts',
  'test/licences.test.ts',
  'test/engines/memory.test.ts',
]

export default defineConfig({
  test: {
    // Real servers on a shared machine: a test that hangs fails here, none is expected to take this long.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // As long as that is expected to take at most, on a machine that does much else. The default is a second.
    expect: { poll: { timeout: 20_000 } },
    // Three at a time, on two cores: they wait for servers and for leases to end. More gain little and make servers late.
    maxWorkers: 3,
    // The second one fails the run if a password is told that a test has planted.
    reporters: ['default', new SecretsReporter()],
    sequence: { sequencer: LongestFirst },
    // Garbage collection on demand, for the tests of what is left behind.
    execArgv: ['--expose-gc'],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text'],
    },
    projects: [
      // They leave nothing behind: one process for many files saves the start of one for each.
      { extends: true, test: { name: 'unit', include: UNIT, isolate: false } },
      // One that fails is run once more, and named as such in the output: real servers on a shared machine are late now and then, and
      // one late answer in 8,000 tests must not hide what the others say. A test that needs it twice has a cause to be found.
      { extends: true, test: { name: 'servers', include: ['test/**/*.test.ts'], exclude: UNIT, retry: 1 } },
    ],
  },
})
