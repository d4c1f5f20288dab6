import { COMMANDS, type CommandSpec, type OptionSpec } from '../command-list.ts'
import { EXIT, usage } from '../exit-codes.ts'
import type { Call } from '../session.ts'

/** A completion script, made of the same table as the help. */
export async function completion({ line }: Call): Promise<number> {
  const [shell, ...others] = line.names
  if (others.length > 0) throw usage(`completion: expected one shell, got '${line.names.join(' ')}'`)
  const make = { bash, zsh, fish }[shell ?? '']
  if (make === undefined)
    throw usage(`expected bash, zsh or fish, got '${shell ?? ''}'`, 'eval "$(ringfence completion bash)"')
  process.stdout.write(`${make()}\n`)
  return EXIT.ok
}

const NAMES = [...COMMANDS.map(({ name }) => name), 'help']

function flags({ options }: CommandSpec): string {
  return options.flatMap(({ name, short }) => [`--${name}`, ...(short === undefined ? [] : [`-${short}`])]).join(' ')
}

/** Behind `--` stands somebody else's command, which bash completes by itself. */
function bash(): string {
  const cases = COMMANDS.map((command) => `    ${command.name}) words='${flags(command)}' ;;`)
  const choices = COMMANDS.flatMap((command) =>
    command.options.flatMap(({ name, choices }) =>
      choices === undefined ? [] : [`    --${name}) words='${choices.join(' ')}' ;;`],
    ),
  )
  return `_ringfence() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} words= index
  for ((index = 2; index < COMP_CWORD; index++)); do
    if [[ \${COMP_WORDS[index]} == -- ]]; then
      COMP_WORDS=("\${COMP_WORDS[@]:index + 1}")
      COMP_CWORD=$((COMP_CWORD - index - 1))
      if ((COMP_CWORD == 0)); then COMPREPLY=($(compgen -c -- "$current")); else COMPREPLY=($(compgen -f -- "$current")); fi
      return
    fi
  done
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${NAMES.join(' ')} --help --version' -- "$current"))
    return
  fi
  case $previous in
    --config | --engine-file) COMPREPLY=($(compgen -f -- "$current")); return ;;
${choices.join('\n')}
    completion) words='bash zsh fish' ;;
    help) words='${COMMANDS.map(({ name }) => name).join(' ')}' ;;
  esac
  if [[ -z $words ]]; then
    case \${COMP_WORDS[1]} in
${cases.map((text) => `  ${text}`).join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _ringfence ringfence`
}

function zshQuoted(text: string): string {
  return text.replaceAll("'", "'\\''").replaceAll(/[[\]:]/g, '\\$&')
}

function zshOption({ name, value, text, choices }: OptionSpec): string {
  const argument =
    value === undefined
      ? ''
      : `:${value}:${choices === undefined ? (/FILE/.test(value) ? '_files' : ' ') : `(${choices.join(' ')})`}`
  return `'--${name}[${zshQuoted(text)}]${argument}'`
}

function zsh(): string {
  const cases = COMMANDS.map(
    (command) =>
      `    ${command.name}) _arguments ${command.options.map(zshOption).join(' ')} '*::argument:_default' ;;`,
  )
  return `#compdef ringfence
_ringfence() {
  local -a commands
  commands=(${COMMANDS.map(({ name, summary }) => `'${name}:${zshQuoted(summary)}'`).join(' ')})
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local separator=\${words[(i)--]}
  if ((separator < CURRENT)); then
    shift $separator words
    ((CURRENT -= separator))
    _normal
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
${cases.join('\n')}
    completion) _values shell bash zsh fish ;;
  esac
}
compdef _ringfence ringfence`
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
}

function fish(): string {
  const lines = ['complete -c ringfence -f']
  for (const { name, summary, options } of COMMANDS) {
    lines.push(`complete -c ringfence -n __fish_use_subcommand -a ${name} -d ${fishQuoted(summary)}`)
    for (const { name: option, short, value, text, choices } of options) {
      const argument =
        value === undefined ? '' : choices === undefined ? ' -r' : ` -x -a ${fishQuoted(choices.join(' '))}`
      const letter = short === undefined ? '' : ` -s ${short}`
      const files = value === 'FILE' ? ' -F' : ''
      lines.push(
        `complete -c ringfence -n '__fish_seen_subcommand_from ${name}' -l ${option}${letter}${argument}${files} -d ${fishQuoted(text)}`,
      )
    }
  }
  lines.push("complete -c ringfence -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'")
  return lines.join('\n')
}
