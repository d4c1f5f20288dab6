import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { file } from '../../../src/engines/file/index.ts'
import { createFolder, removeFolder } from '../../../harness/temporary-folder.ts'

describe('file', () => {
  const folder = createFolder('file')
  afterAll(() => removeFolder(folder))
  const engine = (): Engine => file(join(folder, 'locks.db'))
  const methods = ['adopt', 'enqueue', 'leave', 'probe', 'init'] as const
  for (const { name, run } of conformance({ engine, methods, shared: true })) test(name, run)
})
