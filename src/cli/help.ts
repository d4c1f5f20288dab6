import { readFileSync } from 'node:fs'
import { unknownCommand } from './command-line.ts'
import { COMMANDS, commandNamed, type CommandSpec } from './command-list.ts'
import { ENGINE_URLS, ENVIRONMENT } from './surroundings.ts'
import { EXIT, EXIT_TABLE, usage } from './exit-codes.ts'
import { wrap } from './table.ts'

export function version(): number {
  process.stdout.write(`${packageVersion()}\n`)
  return EXIT.ok
}

export function packageVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return manifest.version
}

/** Of one command, or of all. Asked for, it is a result; without any word, it is how to go on after a mistake. */
export function help(name: string | undefined, stream: NodeJS.WriteStream): number {
  const command = name === undefined ? undefined : commandNamed(name)
  if (name !== undefined && command === undefined)
    throw usage(unknownCommand(name), 'ringfence --help lists the commands')
  const width = Math.min(stream.columns ?? 100, 100)
  stream.write(`${(command === undefined ? overview(width) : page(command, width)).join('\n')}\n`)
  return stream === process.stdout ? EXIT.ok : EXIT.usage
}

function overview(width: number): string[] {
  return [
    'ringfence: distributed locks with fencing tokens, for any command',
    '',
    ...COMMANDS.flatMap(({ name, summary }) => entry(`  ${name}`, summary, 14, width)),
    '',
    'ringfence COMMAND --help tells more, with examples.',
    '',
    'First steps:',
    "  ringfence run hello -- echo 'only one at a time'",
    '  ringfence advise',
    '',
    'Engines, by --engine URL or RINGFENCE_URL:',
    ...ENGINE_URLS.flatMap(([url, engine]) => entry(`  ${url}`, engine, 34, width)),
    '',
    'Environment:',
    ...ENVIRONMENT.flatMap(([name, meaning]) => entry(`  ${name}`, meaning, 22, width)),
    '',
    'Exit codes:',
    ...EXIT_TABLE.flatMap(([code, meaning]) => entry(`  ${code}`, meaning, 14, width)),
  ]
}

function page({ synopsis, summary, text, options, examples }: CommandSpec, width: number): string[] {
  return [
    `Usage: ${synopsis}`,
    '',
    `${summary[0]!.toUpperCase()}${summary.slice(1)}${summary.endsWith('?') ? '' : '.'}`,
    ...text.flatMap((paragraph) => ['', ...wrap(paragraph, width)]),
    '',
    'Options:',
    ...options.flatMap(({ flag, text }) => entry(`  ${flag}`, text, 26, width)),
    '',
    'Examples:',
    ...examples.flatMap(([command, what]) => (what === '' ? [`  ${command}`] : [`  # ${what}`, `  ${command}`])),
  ]
}

function entry(term: string, text: string, indent: number, width: number): string[] {
  const pad = ' '.repeat(indent)
  const [first = '', ...rest] = wrap(text, Math.max(width - indent, 30)).map((line) => `${pad}${line}`)
  return term.length < indent ? [`${term}${first.slice(term.length)}`, ...rest] : [term, first, ...rest]
}
