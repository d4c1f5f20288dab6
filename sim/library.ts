import { createLocks } from '../src/index.ts'
import { redis, redlock } from '../src/engines/redis/index.ts'
import * as scripts from '../src/engines/redis/scripts.ts'

/** What a process has of the library, and by what its commands are told apart. */
export interface Library {
  readonly createLocks: typeof createLocks
  readonly redis: typeof redis
  readonly redlock: typeof redlock
  readonly scripts: Pick<typeof scripts, 'CONFIRM' | 'EXTEND' | 'HAND_OVER' | 'INSPECT' | 'RELEASE' | 'READER'>
}

/** That of this checkout. */
export const CURRENT: Library = { createLocks, redis, redlock, scripts }
