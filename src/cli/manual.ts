import { COMMANDS, type CommandSpec } from './command-list.ts'
import { CHILD_ENVIRONMENT, ENGINE_URLS, ENVIRONMENT } from './surroundings.ts'
import { EXIT_TABLE } from './exit-codes.ts'
import { packageVersion } from './help.ts'

/** The man page, of the same table as the help; `npm run man` writes it to man/ringfence.1. */
export function manual(): string {
  return [
    `.TH RINGFENCE 1 "" "ringfence ${packageVersion()}" "User Commands"`,
    '.SH NAME',
    'ringfence \\- distributed locks with fencing tokens, for any command',
    '.SH SYNOPSIS',
    ...COMMANDS.map(({ synopsis }) => `.nf\n${escaped(synopsis)}\n.fi`),
    '.SH COMMANDS',
    ...COMMANDS.flatMap(section),
    '.SH ENGINES',
    ...ENGINE_URLS.flatMap(term),
    '.SH ENVIRONMENT',
    ...ENVIRONMENT.flatMap(term),
    'The command of run and elect finds:',
    ...CHILD_ENVIRONMENT.flatMap(term),
    '.SH FILES',
    ...term([
      './ringfence.json, $XDG_CONFIG_HOME/ringfence/config.json, /etc/ringfence/config.json',
      'the config files: a JSON object each, with engine, engineFile, ttl, wait, grace, label, store, requireEngine; the first that names a setting decides on it',
    ]),
    '.SH EXIT STATUS',
    ...EXIT_TABLE.flatMap(term),
    '',
  ].join('\n')
}

function section({ name, synopsis, text, options, examples }: CommandSpec): string[] {
  return [
    `.SS ${name}`,
    `.B ${escaped(synopsis)}`,
    ...text.flatMap((paragraph) => ['.PP', escaped(paragraph)]),
    ...options.flatMap(({ flag, text }) => term([flag, text])),
    ...examples.flatMap(([command, what]) => [
      '.PP',
      ...(what === '' ? [] : [escaped(`${what}:`)]),
      '.PP',
      '.nf',
      `.RS 4\n${escaped(command)}\n.RE`,
      '.fi',
    ]),
  ]
}

function term([name, meaning]: readonly [string, string]): string[] {
  return ['.TP', `.B ${escaped(name)}`, escaped(meaning)]
}

/** Backslashes and hyphens mean something else, and so does a dot or a quote at the start of a line. */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('…', '...')
    .replaceAll('’', "'")
    .replace(/^(['.])/, '\\&$1')
}
