import { execFile } from 'node:child_process'
import { cpSync, existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../../harness/temporary-folder.ts'

test.skipIf(process.getBuiltinModule('node:sqlite') !== undefined)(
  'without a library the error says which one to install',
  async () => {
    const folder = createFolder('file')
    cpSync('dist', join(folder, 'dist'), { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
    writeFileSync(
      join(folder, 'try.js'),
      `import { file } from './dist/engines/file/index.cjs'
      const request = { resources: ['x'], owner: 'me', ttlMs: 1000 }
      await file('./locks.db').acquire(request).catch(({ name, transient, message }) => console.log(name, transient, message))`,
    )
    const { stdout } = await promisify(execFile)(process.execPath, ['try.js'], { cwd: folder })
    expect(stdout).toBe(
      'EngineError false the file engine needs SQLite: run `npm install libsql` (with -g if the command was installed with -g), or use Node 22.13 or later, which has SQLite\n',
    )
    expect(existsSync(join(folder, 'locks.db'))).toBe(false)
    removeFolder(folder)
  },
)
