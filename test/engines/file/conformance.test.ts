import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance.ts'
import { file } from '../../../src/engines/file/index.ts'
import { createFolder, removeFolder } from '../../support/temporary-folder.ts'

describe('file', () => {
  const folder = createFolder('file')
  afterAll(() => removeFolder(folder))
  for (const { name, run } of conformance({ engine: () => file(join(folder, 'locks.db')) })) test(name, run)
})
