import { defineConfig } from 'vitest/config'

/** For what needs the TypeScript of the tests: `npm run bench:engines`. */
export default defineConfig({ test: { include: ['bench/engines.ts'], disableConsoleIntercept: true } })
