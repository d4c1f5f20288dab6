import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

test('the verbs that start no program take at most twice the processor time of a Node that does nothing', () => {
  const bench = fileURLToPath(new URL('../../bench/startup.mjs', import.meta.url))
  const which = '^ringfence (--version|status)$'
  const { status, stdout, stderr } = spawnSync(process.execPath, [bench, '2', process.execPath, which], {
    encoding: 'utf8',
  })
  const told = stdout + stderr
  // Two are measured beside `node -e 0`, which is 1.
  expect(told.match(/^ .* ringfence /gm)).toHaveLength(2)
  expect(told).toMatch(/ 1\.00 {3}node -e 0$/m)
  expect({ status, told }).toEqual({ status: 0, told })
})
