import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Real servers on a shared machine: a test that hangs fails here, none is expected to take this long.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Three at a time, on two cores: they wait for servers and for leases to end most of the time.
    maxWorkers: 3,
    // Garbage collection on demand, for the tests of what is left behind.
    execArgv: ['--expose-gc'],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text'],
    },
  },
})
