import { parseArgs } from 'node:util'
import { COMMANDS, type CommandSpec } from './commands.ts'
import { usage } from './exit-codes.ts'

export interface CommandLine {
  readonly command: CommandSpec
  readonly names: readonly string[]
  /** What stands behind `--`. */
  readonly argv: readonly string[] | undefined
  readonly options: Options
}

/** The options that were given, by name. */
export class Options {
  readonly #values: Readonly<Record<string, string | boolean | undefined>>

  constructor(values: Readonly<Record<string, string | boolean | undefined>>) {
    this.#values = values
  }

  text(name: string): string | undefined {
    const value = this.#values[name]
    return typeof value === 'string' ? value : undefined
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined
  }
}

export function parse(command: CommandSpec, args: readonly string[]): CommandLine {
  const split = args.indexOf('--')
  const own = split < 0 ? args : args.slice(0, split)
  const options = Object.fromEntries(
    command.options.map(({ name, short, value }) => [
      name,
      {
        type: value === undefined ? ('boolean' as const) : ('string' as const),
        ...(short === undefined ? {} : { short }),
      },
    ]),
  )
  try {
    const { values, positionals } = parseArgs({ args: [...own], options, allowPositionals: true, strict: true })
    return {
      command,
      names: positionals,
      argv: split < 0 ? undefined : args.slice(split + 1),
      options: new Options(values),
    }
  } catch (error) {
    throw usage(inOurWords(error, command), `ringfence ${command.name} --help shows its options`)
  }
}

/** Node's words explain how to pass values that look like options, which is rarely what went wrong. */
function inOurWords(error: unknown, command: CommandSpec): string {
  const message = error instanceof Error ? error.message : String(error)
  const unknown = /^Unknown option '(-[^']*)'/.exec(message)?.[1]
  if (unknown === undefined) return message.split(/[.\n] /)[0]!
  const near = closest(
    unknown,
    command.options.map(({ name }) => `--${name}`),
  )
  return `unknown option ${unknown}${near === undefined ? '' : `; did you mean ${near}?`}`
}

export function unknownCommand(name: string): string {
  const near = closest(
    name,
    COMMANDS.map((command) => command.name),
  )
  return `unknown command '${name}'${near === undefined ? '' : `; did you mean ${near}?`}`
}

function closest(word: string, candidates: readonly string[]): string | undefined {
  return candidates
    .map((candidate) => ({ candidate, distance: distance(word, candidate) }))
    .filter(({ distance }) => distance <= 2)
    .sort((some, other) => some.distance - other.distance)[0]?.candidate
}

/** How many letters to add, drop or change. */
function distance(some: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (let i = 1; i <= some.length; i++) {
    const next = [i]
    for (let j = 1; j <= other.length; j++) {
      const change = row[j - 1]! + (some[i - 1] === other[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, change))
    }
    row = next
  }
  return row[other.length]!
}
