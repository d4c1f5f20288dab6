import { defineConfig } from 'vitest/config'

/** For what needs the TypeScript of the tests: `npm run bench:engines`, `npm run bench:against`. */
export default defineConfig({
  test: { include: ['bench/engines.ts', 'bench/against.ts'], disableConsoleIntercept: true },
})
