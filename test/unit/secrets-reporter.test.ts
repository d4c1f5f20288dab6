import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const root = path.resolve(import.meta.dirname, '../..')
const planted = ['Pl4', 'nted-w0rd'].join('')

/** A run of Vitest in which a test does each of these. */
async function runOf(...works: string[]): Promise<{ code: number; told: string }> {
  const folder = createFolder('secrets')
  const vitest = path.join(root, 'node_modules/vitest')
  const tests = works.map((work, index) => `test('number ${index}', { retry: 1 }, ({ task }) => { ${work} })`)
  const first = `import { test } from '${vitest}/dist/index.js'\nconst planted = ['Pl4', 'nted-w0rd'].join('')`
  writeFileSync(path.join(folder, 'some.test.mjs'), [first, ...tests].join('\n'))
  const reporters = ['--reporter=default', `--reporter=${root}/test/secrets-reporter.ts`]
  const child = spawn(process.execPath, [`${vitest}/vitest.mjs`, 'run', '--root', folder, ...reporters], {
    cwd: folder,
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (piece: string) => (text += piece))
  }
  const [code] = (await once(child, 'close')) as [number]
  removeFolder(folder)
  return { code, told: /a planted password was told in .*/.exec(text)?.[0] ?? '' }
}

test('a run that tells a planted password fails, wherever it stands', async () => {
  const [well, ill] = await Promise.all([
    runOf(
      `console.log('all is well')`,
      // A token is a bigint, and an error can be its own cause.
      `if (task.result.retryCount === 0) { const error = new Error('odd'); throw Object.assign(error, { token: 7n, cause: error }) }`,
    ),
    runOf(
      `console.log('in a line ' + planted)`,
      `console.error('encoded ' + Buffer.from('a:' + planted).toString('base64'))`,
      `process.stdout.write('in two ' + planted.slice(0, 4)); process.stdout.write(planted.slice(4))`,
      // It passes the second time.
      `if (task.result.retryCount === 0) throw new Error('thrown ' + planted)`,
    ),
  ])
  expect(well).toEqual({ code: 0, told: '' })
  expect(ill.code).toBe(1)
  for (const place of ['in a line', 'encoded', 'two …', "an error of the test 'number 3'"]) {
    expect(ill.told).toContain(place)
  }
  expect(ill.told).not.toContain(planted)
})
