import { join } from 'node:path'
import { describe } from 'vitest'
import { file } from '../../../src/engines/file/index.ts'
import { createFolder, removeFolder } from '../../support/temporary-folder.ts'
import { processTrials, type TrialServers } from '../trials.ts'

describe('file', () => {
  processTrials({ connector: 'file', start, nextWithinMs: 30_000, ttlMs: 30_000 })
})

async function start(): Promise<TrialServers> {
  const folder = createFolder('file')
  const path = join(folder, 'locks.db')
  return {
    env: { RINGFENCE_FILE: path },
    engine: async () => file(path),
    [Symbol.asyncDispose]: async () => removeFolder(folder),
  }
}
