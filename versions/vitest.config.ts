import { defineConfig } from 'vitest/config'

/** For `npm run test:versions -- ringfence@COMMIT`, which starts it. */
export default defineConfig({
  test: { include: ['versions/beside.ts'], disableConsoleIntercept: true },
})
