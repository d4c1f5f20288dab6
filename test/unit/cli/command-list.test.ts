import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { percentiles, recommendedTtlMs, ttlReason } from '../../../src/cli/commands/bench.ts'
import { parse } from '../../../src/cli/command-line.ts'
import { watchPauses } from '../../../src/cli/pauses.ts'
import { sleep, systemClock } from '../../../src/clock.ts'
import { commandNamed, COMMANDS } from '../../../src/cli/command-list.ts'
import { CHILD_ENVIRONMENT, ENVIRONMENT } from '../../../src/cli/surroundings.ts'
import { manual } from '../../../src/cli/manual.ts'

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

test('the documentation names every command and variable', () => {
  const documented = file('docs/cli.md')
  for (const { name } of COMMANDS) expect(documented).toContain(`ringfence ${name}`)
  for (const [name] of [...ENVIRONMENT, ...CHILD_ENVIRONMENT]) expect(documented).toContain(name)
})

/** A row of a table for each option, with the commands that have it. */
function optionRows(): string[] {
  const commandsOf = new Map<string, { readonly text: string; readonly names: string[] }>()
  for (const { name, options } of COMMANDS) {
    for (const option of options) {
      const row = `| \`${option.flag}\` | OF | ${option.text} |`
      const { names } = commandsOf.get(row) ?? { names: [] }
      commandsOf.set(row, { text: row, names: [...names, name] })
    }
  }
  return [...commandsOf.values()].map(({ text, names }) =>
    text.replace('| OF |', `| ${names.length === COMMANDS.length ? 'all' : names.join(', ')} |`),
  )
}

test('docs/cli.md lists every option of every command, with the words of its help, and no other', () => {
  const [, section = ''] = file('docs/cli.md').split('\n## Options\n')
  const [options = ''] = section.split('\n## ')
  expect(options.split('\n').filter((line) => line.startsWith('| `-'))).toEqual(optionRows())
  expect(optionRows().length).toBeGreaterThan(30)
})

test('docs/dashboard.md names every option of the dashboard’s own', () => {
  const common = new Set(commandNamed('status')!.options.map(({ name }) => name))
  const own = commandNamed('dashboard')!.options.filter(({ name }) => !common.has(name))
  expect(own.length).toBe(7)
  for (const { name } of own) expect(file('docs/dashboard.md')).toContain(`--${name}`)
})

test('percentiles are of the values themselves', () => {
  const times = Array.from({ length: 100 }, (_, index) => 100 - index)
  expect(percentiles(times)).toEqual({ p50: 50, p99: 99, worst: 100 })
})

test('the recommended ttl grows with the latency, the drift and the longest pause, and is never below 5 s', () => {
  expect(recommendedTtlMs(0.5, { part: 0 }, 1000)).toBe(5000)
  expect(recommendedTtlMs(9.96, { part: 0.000_01 }, 0)).toBe(5000)
  expect(ttlReason(5000, 1000)).toContain('a pause that was not seen')
  expect(recommendedTtlMs(100, { part: 0 }, 2000)).toBe(15_000)
  expect(ttlReason(15_000, 2000)).toContain('fifty times the p99')
  expect(recommendedTtlMs(100, { part: -0.1 }, 0)).toBe(17_000)
  expect(recommendedTtlMs(100, { part: 0 }, 6001)).toBe(25_000)
  expect(ttlReason(25_000, 6001)).toContain('the longest pause is a quarter of it')
})

test('pauses of the process are seen, those of the garbage collector among them', async () => {
  const pauses = watchPauses()
  // The timer of the measurement has to run once before and once after.
  await sleep(systemClock, 20)
  const began = systemClock.monotonicMs()
  const kept: unknown[] = []
  // Enough for a collection, also where the machine gives this process little of that time.
  while (systemClock.monotonicMs() - began < 100 || kept.length < 2000)
    kept.push(Array.from({ length: 1000 }, (_, index) => ({ index })))
  const stoodStillMs = systemClock.monotonicMs() - began
  await sleep(systemClock, 20)
  const { longestMs, longestGcMs } = pauses()
  expect(kept.length).toBeGreaterThan(0)
  expect(longestMs).toBeGreaterThanOrEqual(stoodStillMs - 10)
  expect(longestGcMs).toBeGreaterThan(0)
})

test('an option that an election cannot have is refused with the reason', () => {
  const elect = commandNamed('elect')!
  for (const option of ['--shared', '--permits'])
    expect(() => parse(elect, [option, 'leader'])).toThrow(
      `unknown option ${option}: there is one leader; \`ringfence run ${option}`,
    )
})
