import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { isAvailable, program } from '../../harness/binaries.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

/** What `bench/startup.mjs` says of these, which are measured beside `node -e 0`. */
function started(node: string, verbs: readonly string[], env: Record<string, string> = {}): void {
  const bench = fileURLToPath(new URL('../../bench/startup.mjs', import.meta.url))
  const which = `^ringfence (${verbs.join('|')})`
  const { status, stdout, stderr } = spawnSync(process.execPath, [bench, '2', node, which], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })
  const told = stdout + stderr
  expect(told.match(/^ .* ringfence /gm)).toHaveLength(verbs.length)
  expect(told).toMatch(/ 1\.00 {3}node -e 0$/m)
  expect({ status, told }).toEqual({ status: 0, told })
}

test('the verbs that start no program take at most twice the processor time of a Node that does nothing, and run not much more', () => {
  started(process.execPath, ['--version$', 'status$', 'run '])
})

test.skipIf(!isAvailable('node'))('with a compile cache the former do on Node 22, too', () => {
  const cache = createFolder('cache')
  try {
    started(program('node').path, ['--version$', 'status$'], { NODE_COMPILE_CACHE: cache })
  } finally {
    removeFolder(cache)
  }
})
