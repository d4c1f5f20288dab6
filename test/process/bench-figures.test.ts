import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const run = promisify(execFile)
const root = path.resolve(import.meta.dirname, '../..')

test('README, bench/README and the chart show the kept results; if not: node bench/publish.mjs', async () => {
  const { stdout } = await run(process.execPath, [`${root}/bench/publish.mjs`, '--check'])
  expect(stdout).toBe('')
})

test('another result than the one that is shown is noticed, and put into all of them', async () => {
  const copy = await mkdtemp(path.join(tmpdir(), 'ringfence-figures-'))
  try {
    await cp(`${root}/bench`, `${copy}/bench`, { recursive: true })
    await cp(`${root}/README.md`, `${copy}/README.md`)
    await edit(`${copy}/bench/results/latest.json`, '"commit": "', '"commit": "0')
    await edit(`${copy}/bench/results/engines.json`, '"commit": "', '"commit": "0')
    const script = `${copy}/bench/publish.mjs`
    const noticed = await run(process.execPath, [script, '--check']).catch((error: unknown) => error)
    expect(noticed).toMatchObject({ code: 1, stdout: expect.stringContaining('README.md does not show') as string })
    const { stdout } = await run(process.execPath, [script])
    expect(stdout).toBe('bench/results/chart.svg written\nREADME.md written\nbench/README.md written\n')
    expect(await run(process.execPath, [script, '--check'])).toMatchObject({ stdout: '' })
  } finally {
    await rm(copy, { recursive: true })
  }
})

async function edit(file: string, from: string, to: string): Promise<void> {
  const text = await readFile(file, 'utf8')
  expect(text).toContain(from)
  await writeFile(file, text.replace(from, to))
}
