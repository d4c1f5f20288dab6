import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const run = promisify(execFile)
const root = path.resolve(import.meta.dirname, '../..')

test('README, bench/README and the chart show the kept results; if not: node bench/publish.mjs', async () => {
  const { stdout } = await run(process.execPath, [`${root}/bench/publish.mjs`, '--check'])
  expect(stdout).toBe('')
})

/** The benchmark and the README, to change and publish there. */
async function copied(): Promise<{ copy: string; publish: (...args: string[]) => Promise<{ stdout: string }> }> {
  const copy = await mkdtemp(path.join(tmpdir(), 'ringfence-figures-'))
  onTestFinished(() => rm(copy, { recursive: true }))
  await cp(`${root}/bench`, `${copy}/bench`, { recursive: true })
  await cp(`${root}/README.md`, `${copy}/README.md`)
  return { copy, publish: (...args) => run(process.execPath, [`${copy}/bench/publish.mjs`, ...args]) }
}

test('another result than the one that is shown is noticed, and put into all of them', async () => {
  const { copy, publish } = await copied()
  await edit(`${copy}/bench/results/latest.json`, '"commit": "', '"commit": "0')
  await edit(`${copy}/bench/results/engines.json`, '"commit": "', '"commit": "0')
  const noticed = await publish('--check').catch((error: unknown) => error)
  expect(noticed).toMatchObject({ code: 1, stdout: expect.stringContaining('README.md does not show') as string })
  const { stdout } = await publish()
  expect(stdout).toBe('bench/results/chart.svg written\nREADME.md written\nbench/README.md written\n')
  expect(await publish('--check')).toMatchObject({ stdout: '' })
})

const REPORT = {
  format: 2,
  date: '2026-11-18',
  commit: 'abcdef0',
  node: 'v20.20.2',
  redis: '7.0.15',
  cpu: '2 × a core',
  questions: [
    {
      number: 1,
      title: 'one node',
      load: 0.5,
      loadAfter: 1.5,
      tables: [
        {
          rows: [
            { library: 'bare commands', perSecond: 2000, toBare: 1 },
            { library: 'ringfence', perSecond: 1700, spread: 0.1, toBare: 0.8 },
            { library: 'ringfence at 1234567', perSecond: 1000, toBare: 0.5 },
            { library: 'redlock 5 beta', perSecond: 1600, toBare: 0.9 },
            { library: 'redis-semaphore', perSecond: 1900, toBare: 0.7 },
          ],
          // Round by round ringfence makes 0.5, 0.8 and 0.9 of the bare commands; of the means it would be 0.7.
          rounds: {
            figure: 'µs a section',
            columns: [
              'at',
              'load',
              'bare commands',
              'ringfence',
              'ringfence at 1234567',
              'redlock 5 beta',
              'redis-semaphore',
            ],
            rows: [
              ['2026-11-18T00:00:00Z', 0.5, 400, 500, 800, 450, 570],
              ['2026-11-18T00:00:01Z', 0.7, 400, 800, 800, 440, 570],
              ['2026-11-18T00:00:02Z', 0.9, 450, 500, 900, 500, null],
            ],
          },
        },
      ],
      goals: [
        {
          question: 1,
          text: 'of the bare commands',
          goal: 0.93,
          stretch: 1.03,
          value: 0.8,
          low: 0.5,
          high: 0.9,
          rounds: 3,
          verdict: 'not reached',
        },
        { question: 7, text: 'client CPU', goal: 0.5, atMost: true, verdict: 'not measured' },
      ],
    },
  ],
}

test('ratios are those of the rounds, beside the goals and the other build', async () => {
  const { copy, publish } = await copied()
  await writeFile(`${copy}/bench/results/latest.json`, JSON.stringify(REPORT))
  await publish()
  // The best peer is the one that comes closest to the bare commands round by round, not the one with the highest rate.
  expect(await readFile(`${copy}/README.md`, 'utf8')).toContain(
    '| one at a time, one node | 0.80 | 0.90 (redlock 5 beta) |',
  )
  const page = await readFile(`${copy}/bench/README.md`, 'utf8')
  expect(page).toContain('commit abcdef0: Node 20.20.2, Redis 7.0.15, ioredis, loopback, 2 × a core')
  expect(page).toContain('load 0.5 to 1.5')
  expect(page).toContain('| 1,700 ± 5 % | 1,000 | 2,000 | 1,600 to 1,900 | 0.80 | 0.90 | 3 of 4 |')
  expect(page).toContain('0 of 2 goals reached')
  expect(page).toContain('| 1 | of the bare commands | 0.80 | 0.50 to 0.90 | 3 | ≥ 0.93 | ≥ 1.03 | not reached |')
  expect(page).toContain('| 7 | client CPU | – |  |  | ≤ 0.5 |  | not measured |')
  expect(await readFile(`${copy}/bench/results/chart.svg`, 'utf8')).toContain('0.80 of bare, 0.90 of redlock 5 beta')
})

async function edit(file: string, from: string, to: string): Promise<void> {
  const text = await readFile(file, 'utf8')
  expect(text).toContain(from)
  await writeFile(file, text.replace(from, to))
}
