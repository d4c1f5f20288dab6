import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Real servers on a shared machine: a test that hangs fails here, none is expected to take this long.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Two at a time: every file starts servers of its own.
    maxWorkers: 2,
    // Garbage collection on demand, for the tests of what is left behind.
    execArgv: ['--expose-gc'],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text'],
    },
  },
})
