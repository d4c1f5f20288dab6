import { defineConfig } from 'vitest/config'

/**
 * The unit tests by themselves, on whichever runtime Vitest is started by. Those of the documents and of the tidiness of the
 * sources say nothing about a runtime.
 */
export default defineConfig({
  test: {
    root: `${import.meta.dirname}/../..`,
    include: ['test/unit/**/*.test.ts', 'test/engines/memory.test.ts'],
    // On Deno a child process that was stopped can be neither continued nor killed by `child.kill`, as the harness does it.
    exclude: 'deno' in process.versions ? ['test/unit/harness/child.test.ts'] : [],
    setupFiles: [`${import.meta.dirname}/runtime.ts`],
    testTimeout: 60_000,
    maxWorkers: 2,
    isolate: false,
    execArgv: ['--expose-gc'],
  },
})
