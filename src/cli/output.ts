import { styleText } from 'node:util'
import { printable } from '../owner.ts'

type Style = Parameters<typeof styleText>[0]

/** Passwords that we have seen; nothing that is printed contains one, also no message of a driver or server. */
const secrets = new Set<string>()

export function keepSecret(secret: string): void {
  for (const form of [secret, decoded(secret), encodeURIComponent(decoded(secret))]) {
    if (form !== '') secrets.add(form)
  }
}

/** How the names of what is secret end. */
export const SECRET_NAMES = 'password|passwd|pass|pwd|token|secret|api[_-]?key'

/** Anything shorter is a part of many a word: it is hidden only where it stands as a secret, as in `:abc@` and `password=abc`. */
export const SHORTEST_WORD = 4

export function withoutSecrets(text: string): string {
  let clean = text
  // The longest first: one may be a part of another.
  for (const secret of [...secrets].sort((some, other) => other.length - some.length)) {
    clean = clean.replaceAll(secret.length < SHORTEST_WORD ? asSecret(secret) : secret, '***')
  }
  return clean
}

function asSecret(secret: string): RegExp {
  const escaped = secret.replace(/[^\w\s]/g, '\\$&')
  return new RegExp(`(?<=:)${escaped}(?=@)|(?<=(?:${SECRET_NAMES})['"]?[=:]\\s?['"]?)${escaped}(?=$|[^\\w%])`, 'gi')
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** As it may be printed. */
export function clean(text: string): string {
  return printable(withoutSecrets(text))
}

/** Of the line, from the cursor on. */
const ERASE_REST = '\u001b[K'

/** A part of a line with a style, for a terminal. */
interface Styled {
  readonly style: Style
  readonly text: string
}

/** How a command speaks: to people on a terminal, to files and pipes, or to machines. */
export class Output {
  readonly json: boolean
  readonly quiet: boolean
  readonly #isVerbose: boolean
  #isLive = false

  constructor({ json, quiet, verbose = false }: { json: boolean; quiet: boolean; verbose?: boolean }) {
    this.json = json
    this.quiet = quiet
    this.#isVerbose = verbose
  }

  /** A result, on stdout, in one line. */
  line(...parts: readonly (string | Styled)[]): void {
    const shown = parts.map((part) =>
      typeof part === 'string' ? clean(part) : this.#styled(part.style, clean(part.text), process.stdout),
    )
    process.stdout.write(`${shown.join('')}\n`)
  }

  /** A result for machines: one line, on stdout, without what is undefined. Tokens are strings: they outgrow JSON's numbers. */
  object(value: unknown, stream: NodeJS.WriteStream = process.stdout): void {
    const text = JSON.stringify(value, (_key, field: unknown) => {
      if (typeof field === 'bigint') return String(field)
      return typeof field === 'string' ? withoutSecrets(field) : field
    })
    // JSON.stringify leaves those be that are not control characters in JSON's eyes; they may stand in strings alone.
    stream.write(`${printable(text)}\n`)
  }

  /** About what happens, on stderr. */
  say(text: string): void {
    if (!this.quiet && !this.json) this.complain(text)
  }

  /** The same, but only when a person watches: cron would mail it. */
  whisper(text: string): void {
    if (process.stderr.isTTY) this.say(text)
  }

  /** Where something came from, on stderr, for those who ask with --verbose. */
  explain(text: string): void {
    if (this.#isVerbose) this.complain(text)
  }

  /** What must be known, on stderr. */
  complain(text: string): void {
    this.endLive()
    process.stderr.write(`ringfence: ${clean(text)}\n`)
  }

  /** Whether a line can be rewritten: a person watches who wants to know. */
  get canBeLive(): boolean {
    return process.stderr.isTTY && !this.quiet && !this.json && process.env['TERM'] !== 'dumb'
  }

  /** A line on the terminal that takes the place of the one before it. */
  live(text: string): void {
    // A line that is longer than the terminal is wide could not be rewritten.
    const shown = clean(`ringfence: ${text}`).slice(0, Math.max((process.stderr.columns || 80) - 1, 10))
    process.stderr.write(`\r${shown}${ERASE_REST}`)
    this.#isLive = true
  }

  /** Takes that line away. */
  endLive(): void {
    if (this.#isLive) process.stderr.write(`\r${ERASE_REST}`)
    this.#isLive = false
  }

  /** What to do about it. */
  advise(next: string): void {
    process.stderr.write(`  next: ${clean(next)}\n`)
  }

  /** Colours on a terminal alone, and not for those who do not want them. */
  #styled(style: Style, text: string, stream: NodeJS.WriteStream): string {
    const noColor = (process.env['NO_COLOR'] ?? '') !== '' || process.env['TERM'] === 'dumb'
    return stream.isTTY && !noColor && !this.json ? styleText(style, text, { validateStream: false }) : text
  }
}

/** What an error says, with what it says of its causes. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // A refused connection to several addresses has no message of its own.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error.message
}
