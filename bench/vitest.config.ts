import { defineConfig } from 'vitest/config'

/** For what needs the TypeScript of the tests: `npm run bench:engines`, `npm run bench:against`, `npm run bench:sizing`. */
export default defineConfig({
  test: { include: ['bench/engines.ts', 'bench/against.ts', 'bench/sizing.ts'], disableConsoleIntercept: true },
})
