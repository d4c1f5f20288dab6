import { styleText } from 'node:util'

type Style = Parameters<typeof styleText>[0]

/** Passwords that we have seen; nothing that is printed contains one, whoever worded it. */
const secrets = new Set<string>()

export function keepSecret(secret: string): void {
  for (const form of [secret, decoded(secret), encodeURIComponent(decoded(secret))]) {
    if (form !== '') secrets.add(form)
  }
}

export function withoutSecrets(text: string): string {
  let clean = text
  // The longest first: one may be a part of another.
  for (const secret of [...secrets].sort((some, other) => other.length - some.length)) {
    clean = clean.replaceAll(secret, '***')
  }
  return clean
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** How a command speaks: to people on a terminal, to files and pipes, or to machines. */
export class Output {
  readonly json: boolean
  readonly quiet: boolean

  constructor({ json, quiet }: { json: boolean; quiet: boolean }) {
    this.json = json
    this.quiet = quiet
  }

  /** A result, on stdout. */
  line(text: string): void {
    process.stdout.write(`${withoutSecrets(text)}\n`)
  }

  /** A result for machines: one line, on stdout. Tokens are strings: they outgrow JSON's numbers. */
  object(value: unknown, stream: NodeJS.WriteStream = process.stdout): void {
    const text = JSON.stringify(value, (_key, field: unknown) => {
      if (typeof field === 'bigint') return String(field)
      return typeof field === 'string' ? withoutSecrets(field) : field
    })
    stream.write(`${text}\n`)
  }

  /** About what happens, on stderr. */
  say(text: string): void {
    if (!this.quiet && !this.json) this.complain(text)
  }

  /** The same, but only when a person watches: cron would mail it. */
  whisper(text: string): void {
    if (process.stderr.isTTY) this.say(text)
  }

  /** What must be known, on stderr. */
  complain(text: string): void {
    process.stderr.write(`ringfence: ${withoutSecrets(text)}\n`)
  }

  /** Colours on a terminal alone, and not for those who don't want them. */
  styled(style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string {
    const noColor = (process.env['NO_COLOR'] ?? '') !== '' || process.env['TERM'] === 'dumb'
    return stream.isTTY && !noColor && !this.json ? styleText(style, text, { validateStream: false }) : text
  }
}

/** '1.5 s', '250 ms', '2 min 5 s', '3 h 20 min'. */
export function span(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** What an error says, with what it says of its causes. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // A refused connection to several addresses has no message of its own.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error.message
}
