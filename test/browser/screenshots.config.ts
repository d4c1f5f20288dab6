import { defineConfig } from 'vitest/config'

/** `npm run screenshots`: makes the pictures in docs/images from leases on real servers. */
export default defineConfig({ test: { include: ['test/browser/screenshots.ts'], testTimeout: 120_000 } })
