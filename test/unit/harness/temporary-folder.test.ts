import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { createFolder, emptyFolder, removeFolder } from '../../../harness/temporary-folder.ts'

// Beyond the highest process id that Linux gives out.
const deadPid = 4_194_305

test('folders of a killed run are removed by the next one, those of a living run are not', () => {
  const dead = mkdtempSync(path.join(tmpdir(), `ringfence-redis-${deadPid}-`))
  const living = mkdtempSync(path.join(tmpdir(), `ringfence-redis-${process.ppid}-`))
  const mine = createFolder('test')
  expect([dead, living, mine].map((folder) => existsSync(folder))).toEqual([false, true, true])
  removeFolder(mine)
  rmSync(living, { recursive: true })
})

test('an emptied folder holds nothing', () => {
  const folder = createFolder('test')
  emptyFolder(path.join(folder, 'data'))
  writeFileSync(path.join(folder, 'data', 'file'), 'text')
  emptyFolder(path.join(folder, 'data'))
  expect(readdirSync(path.join(folder, 'data'))).toEqual([])
  removeFolder(folder)
  expect(existsSync(folder)).toBe(false)
})
