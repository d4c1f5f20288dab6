import { parseArgs } from 'node:util'
import { closest } from '../arguments.ts'
import { COMMANDS, type CommandSpec } from './command-list.ts'
import { usage } from './exit-codes.ts'
import { messageOf } from './output.ts'

export interface CommandLine {
  readonly command: CommandSpec
  readonly names: readonly string[]
  /** What stands behind `--`. */
  readonly argv: readonly string[] | undefined
  readonly options: Options
}

type GivenValue = string | boolean

/** The options that were given, by name. */
export class Options {
  readonly #values: Readonly<Record<string, GivenValue | GivenValue[] | undefined>>

  constructor(values: Readonly<Record<string, GivenValue | GivenValue[] | undefined>>) {
    this.#values = values
  }

  text(name: string): string | undefined {
    return this.texts(name).at(-1)
  }

  /** Each time that it was given. */
  texts(name: string): readonly string[] {
    return [this.#values[name] ?? []].flat().filter((value) => typeof value === 'string')
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined
  }
}

export function parse(command: CommandSpec, args: readonly string[]): CommandLine {
  const split = args.indexOf('--')
  const own = split < 0 ? args : args.slice(0, split)
  const options = Object.fromEntries(
    command.options.map(({ name, short, value, isMultiple = false }) => [
      name,
      {
        type: value === undefined ? ('boolean' as const) : ('string' as const),
        multiple: isMultiple,
        ...(short === undefined ? {} : { short }),
      },
    ]),
  )
  const next = `ringfence ${command.name} --help shows its options`
  let parsed
  try {
    parsed = parseArgs({ args: [...own], options, allowPositionals: true, strict: true })
  } catch (error) {
    throw usage(inOurWords(error, command), next)
  }
  // As in `--label "$NAME"`, where NAME was never set.
  for (const [name, value] of Object.entries(parsed.values))
    if ([value].flat().some((one) => typeof one === 'string' && one.trim() === ''))
      throw usage(`--${name} is empty`, next)
  return {
    command,
    names: parsed.positionals,
    argv: split < 0 ? undefined : args.slice(split + 1),
    options: new Options(parsed.values),
  }
}

/** Options that other commands have, and why these do not. */
const NOT_THERE: Readonly<Record<string, string>> = {
  'elect --shared': 'there is one leader; `ringfence run --shared` is for many readers',
  'elect --permits': 'there is one leader; `ringfence run --permits N` is for several at a time',
}

/** Node's words explain how to pass values that look like options, which is rarely what went wrong. */
function inOurWords(error: unknown, command: CommandSpec): string {
  const message = messageOf(error)
  const valueless = /^Option '(?:-\w, )?(--[\w-]+) <value>' argument missing/.exec(message)?.[1]
  if (valueless !== undefined) {
    const { value = 'a value', choices } = command.options.find(({ name }) => `--${name}` === valueless) ?? {}
    return `${valueless}: expected ${choices?.join(' or ') ?? value}, got nothing`
  }
  const unknown = /^Unknown option '(-[^']*)'/.exec(message)?.[1]
  if (unknown === undefined) return message.split(/[.\n] /)[0]!
  const why = NOT_THERE[`${command.name} ${unknown}`]
  if (why !== undefined) return `unknown option ${unknown}: ${why}`
  const known = command.options.map(({ name }) => `--${name}`)
  return `unknown option ${unknown}${didYouMean(unknown, known)}`
}

export function unknownCommand(name: string): string {
  if (name.startsWith('-')) return `expected a command, got the option ${name}: options stand behind the command`
  const known = COMMANDS.map((command) => command.name)
  return `unknown command '${name}'${didYouMean(name, known)}`
}

/** To follow the word that is not known. */
export function didYouMean(word: string, known: readonly string[]): string {
  const near = closest(word, known)
  return near === undefined ? '' : `; did you mean ${near}?`
}
