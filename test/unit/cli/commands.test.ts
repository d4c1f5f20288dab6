import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { percentiles, recommendedTtlMs } from '../../../src/cli/bench.ts'
import { parse } from '../../../src/cli/command-line.ts'
import { CHILD_ENVIRONMENT, commandNamed, COMMANDS, ENVIRONMENT } from '../../../src/cli/commands.ts'
import { scoreOf } from '../../../src/cli/doctor.ts'
import type { Finding } from '../../../src/index.ts'
import { manual } from '../../../src/cli/manual.ts'
import { RINGFENCE } from '../../support/command.ts'

const file = (path: string): string => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8')

test('the man page is up to date; if not: npm run man', () => {
  expect(file('man/ringfence.1')).toBe(manual())
})

test('the man page names every option, and no line of text is taken for a macro', () => {
  const lines = file('man/ringfence.1').split('\n')
  const page = lines.join('\n').replaceAll('\\-', '-')
  for (const { options } of COMMANDS) for (const { name } of options) expect(page).toContain(`--${name}`)
  const macros = lines.filter((line) => line.startsWith('.')).map((line) => line.split(' ')[0])
  expect(new Set(macros)).toEqual(new Set(['.TH', '.SH', '.SS', '.PP', '.TP', '.B', '.nf', '.fi', '.RS', '.RE']))
})

test.each(COMMANDS.map(({ name }) => name))('ringfence %s --help shows its options and examples', (name) => {
  const { options, examples } = commandNamed(name)!
  const shown = execFileSync(process.execPath, [RINGFENCE, name, '--help'], { encoding: 'utf8' })
  for (const option of options) expect(shown).toContain(`--${option.name}`)
  for (const [example] of examples) expect(shown).toContain(example)
  expect(examples.length).toBeGreaterThan(0)
})

test('every example is one that the command understands', () => {
  const examples = COMMANDS.flatMap(({ examples }) => examples.map(([example]) => example))
  const words = examples.map((example) => example.split(' '))
  const calls = words.map((all) => all.slice(all.findIndex((word) => word.endsWith('ringfence')) + 1))
  for (const [name, ...args] of calls) {
    const command = commandNamed(name!)!
    const end = args.findIndex((word) => /^([|>]|&&)/.test(word))
    expect(() => parse(command, end < 0 ? args : args.slice(0, end))).not.toThrow()
  }
})

test('the documentation names every command, option and variable', () => {
  const documented = file('docs/cli.md')
  for (const { name } of COMMANDS) expect(documented).toContain(`ringfence ${name}`)
  for (const [name] of [...ENVIRONMENT, ...CHILD_ENVIRONMENT]) expect(documented).toContain(name)
})

test.each(['bash', 'zsh', 'fish'])('the completion for %s knows every command and option', (shell) => {
  const script = execFileSync(process.execPath, [RINGFENCE, 'completion', shell], { encoding: 'utf8' })
  for (const { name, options } of COMMANDS) {
    expect(script).toContain(name)
    for (const option of options) expect(script).toContain(option.name)
  }
})

test.each([
  ['ringfence ', ['run', 'status', 'help']],
  ['ringfence st', ['status']],
  ['ringfence run --no', ['--no-wait', '--no-tty']],
  ['ringfence advise --failure ', ['waste', 'damage']],
  ['ringfence run x -- ech', ['echo']],
])('bash completes "%s"', (line, expected) => {
  const script = execFileSync(process.execPath, [RINGFENCE, 'completion', 'bash'], { encoding: 'utf8' })
  const words = line.split(' ')
  const ask = `${script}
    COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}
    _ringfence; printf '%s\\n' "\${COMPREPLY[@]}"`
  const offered = execFileSync('bash', ['-c', ask], { encoding: 'utf8' }).trim().split('\n')
  for (const word of expected) expect(offered).toContain(word)
})

function finding(severity: Finding['severity']): Finding {
  return { id: 'x', severity, found: '', meaning: '' }
}

test('one critical finding leaves less than half of the score', () => {
  expect(scoreOf([finding('ok'), finding('ok')])).toBe(100)
  expect(scoreOf([finding('critical')])).toBeLessThan(50)
  expect(scoreOf([finding('warning')])).toBeGreaterThan(50)
  expect(scoreOf(Array.from({ length: 9 }, () => finding('critical')))).toBe(0)
})

test('percentiles are of the values themselves', () => {
  const times = Array.from({ length: 100 }, (_, index) => 100 - index)
  expect(percentiles(times)).toEqual({ p50: 50, p99: 99, worst: 100 })
})

test('the recommended ttl grows with the latency and the drift, and is never below 5 s', () => {
  expect(recommendedTtlMs(0.5, { part: 0 })).toBe(5000)
  expect(recommendedTtlMs(100, { part: 0 })).toBe(15_000)
  expect(recommendedTtlMs(100, { part: -0.1 })).toBe(17_000)
})
