const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** Two units at most; tenths of a second only where they matter, for what is about to end. */
export function duration(ms: number, tenths = false): string {
  const rest = Math.max(0, ms)
  if (tenths && rest < 10 * SECOND) return `${(Math.floor(rest / 100) / 10).toFixed(1)}s`
  if (rest < MINUTE) return `${Math.floor(rest / SECOND)}s`
  if (rest < HOUR) return `${Math.floor(rest / MINUTE)}m ${two((rest % MINUTE) / SECOND)}s`
  if (rest < DAY) return `${Math.floor(rest / HOUR)}h ${two((rest % HOUR) / MINUTE)}m`
  return `${Math.floor(rest / DAY)}d ${Math.floor((rest % DAY) / HOUR)}h`
}

function two(value: number): string {
  return String(Math.floor(value)).padStart(2, '0')
}

export function milliseconds(ms: number, signed = false): string {
  const size = Math.abs(ms)
  const digits = size < 10 ? 1 : 0
  const text = size < 10_000 ? `${size.toFixed(digits)} ms` : duration(size)
  if (!signed) return text
  return `${ms < 0 ? '−' : '+'}${text}`
}

/** `90s`, `5m`, `1.5h` or plain milliseconds with `ms`; undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$/i.exec(text)
  if (match === null) return undefined
  const units: Record<string, number> = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY }
  return Math.round(Number(match[1]) * units[match[2]!.toLowerCase()]!)
}

/** The shortest text that `parseDuration` reads as this. */
export function plainDuration(ms: number): string {
  if (ms % HOUR === 0) return `${ms / HOUR}h`
  if (ms % MINUTE === 0) return `${ms / MINUTE}m`
  return ms % SECOND === 0 ? `${ms / SECOND}s` : `${Math.round(ms)}ms`
}

const moments = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' })

/** Ms since 1970, as a time of day where the page is looked at. */
export function moment(ms: number): string {
  return moments.format(ms)
}

const formatter = new Intl.NumberFormat('en')

export function count(value: number): string {
  return formatter.format(value)
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}

/** What an error says is a part of a sentence, and may be a server's: as a sentence of its own. */
export function sentence(clause: string): string {
  return `${clause.slice(0, 1).toUpperCase()}${clause.slice(1).replace(/\.$/, '')}.`
}

// Everything that has no picture of its own or turns the text around it: controls, marks of direction, odd spaces.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u00a0\u2000-\u200a\u202f\u3000]|^\s|\s$| {2}/u

/** The name with its invisible characters spelt out, or undefined where there are none. */
export function spelt(name: string): string | undefined {
  if (!INVISIBLE.test(name)) return undefined
  const all = new RegExp(INVISIBLE.source.replace(/\|\^.*$/, ''), 'gu')
  return JSON.stringify(name).replace(all, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`)
}
