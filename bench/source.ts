/** What builds.mjs loads as `src`: one module, so that the two entries share what they have in common. */
export { createLocks } from '../src/index.ts'
export { redis, redlock } from '../src/engines/redis/index.ts'
