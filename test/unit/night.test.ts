import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const root = path.resolve(import.meta.dirname, '../..')
const script = path.join(root, 'scripts/night.mjs')

let folder: string
beforeAll(() => {
  folder = createFolder('night')
  // Notes what would have run, and fails where it is told to.
  const npm = path.join(folder, 'npm')
  writeFileSync(npm, `#!/bin/sh\necho "$3" >> '${folder}/ran'\n[ "$3" != "$FAILS" ]\n`)
  chmodSync(npm, 0o755)
})
afterAll(() => removeFolder(folder))

function plan(time: string): string[] {
  const out = execFileSync(process.execPath, [script, '--plan', '--for', time], { encoding: 'utf8' })
  return out
    .trim()
    .replace(/--seed \d+/, '--seed N')
    .split('\n')
}

/** What ran, with an npm that runs nothing. */
function ranWith(fails: string): { ran: string[]; status: number | null; stderr: string } {
  writeFileSync(path.join(folder, 'ran'), '')
  const env = { ...process.env, PATH: `${folder}:${process.env['PATH']}`, FAILS: fails }
  const { status, stderr } = spawnSync(process.execPath, [script], { env, encoding: 'utf8' })
  return { ran: readFileSync(path.join(folder, 'ran'), 'utf8').trim().split('\n'), status, stderr }
}

test('most of a night is for the simulator; then come fuzzing, chaos on all engines and schedules', () => {
  const night = plan('8h')
  expect(night).toEqual([
    'npm run servers',
    'npm run sim -- --night --for 21600s',
    'npm run fuzz -- --for 600s',
    'npm run chaos -- --engine all --seconds 60',
    'npm run schedules -- --seed N --seeds 2000',
  ])
  expect(plan('20h')).toEqual(night.map((line) => line.replace('21600s', '54000s')))
})

test('a shorter one has less of everything', () => {
  expect(plan('20m').slice(1)).toEqual([
    'npm run sim -- --night --for 900s',
    'npm run fuzz -- --for 25s',
    'npm run chaos -- --engine all --seconds 5',
    'npm run schedules -- --seed N --seeds 83',
  ])
})

test('all that it runs is there', () => {
  const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>
  }
  expect(scripts['night']).toBe('node scripts/night.mjs')
  const lines = plan('8h')
  const called = lines.map((line) => line.split(' ')[2]!)
  expect(called.filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
  const files = { sim: 'sim/main.ts', fuzz: 'scripts/fuzz.mjs', chaos: 'chaos/main.ts', schedules: 'schedules/main.ts' }
  const unknown = Object.entries(files).flatMap(([name, file]) => {
    const options = readFileSync(path.join(root, file), 'utf8')
    const line = lines.find((one) => one.startsWith(`npm run ${name} `))!
    return [...line.matchAll(/--(\w+)/g)].filter(([, option]) => !options.includes(` ${option}: { type`)).join()
  })
  expect(unknown.join('')).toBe('')
})

test('it goes on until something is found, and says what to do then', () => {
  expect(ranWith('')).toEqual({
    ran: ['servers', 'sim', 'fuzz', 'chaos', 'schedules'],
    status: 0,
    stderr: '',
  })
  const { ran, status, stderr } = ranWith('fuzz')
  expect(ran).toEqual(['servers', 'sim', 'fuzz'])
  expect(status).toBe(1)
  expect(stderr).toMatch(
    /The night ends here: `npm run fuzz -- --for 600s` has ended with 1\.\nThe smallest counterexample/,
  )
})

test('a time that is none is refused', () => {
  const { status, stderr } = spawnSync(process.execPath, [script, '--for', 'long'], { encoding: 'utf8' })
  expect([status, stderr]).toEqual([2, "--for: expected a time such as 30s, 10m or 8h, got 'long'\n"])
})
