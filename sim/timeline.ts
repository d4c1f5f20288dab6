import type { EventOf, History, HistoryEvent, Verdict } from './history.ts'

/** One line of a story. */
export interface Line {
  readonly at: number
  /** Where it happened: a process, a node, the store. */
  readonly place: string
  readonly text: string
  readonly weight: 'fault' | 'lease' | 'store' | 'message'
}

const MESSAGES = new Set(['send', 'exec', 'heard', 'dropped'])

/** What happened, for people: faults, leases, writes, and the messages of those owners who matter. */
export function timeline(
  history: History,
  options: { owners?: readonly string[]; fromMs?: number; toMs?: number } = {},
): Line[] {
  const names = new Names(history)
  const { owners = [], fromMs = 0, toMs = Infinity } = options
  const lines: Line[] = []
  const given = history.of('ends').filter(({ why }) => why === 'released')
  const released = new Set(given.map(({ owner }) => owner))
  for (const event of history.events) {
    if (event.at < fromMs || event.at > toMs) continue
    const isMessage = MESSAGES.has(event.kind)
    if (isMessage && !('owner' in event && (owners.includes(event.owner) || owners.includes('*')))) continue
    // Renewals, and the signal of a lease that was given back, are told only of those who matter.
    const isUsual = event.kind === 'until' || (event.kind === 'signal' && released.has(event.owner))
    if (isUsual && !owners.includes(event.owner)) continue
    const line = lineOf(event, names)
    if (line !== undefined) lines.push(line)
  }
  return lines.sort((a, b) => a.at - b.at)
}

/** Around what went wrong. */
export function storyOf(history: History, verdict: Extract<Verdict, { verdict: 'false' }>): Line[] {
  const { owners, at } = verdict
  const about = history.events.filter((event) => 'owner' in event && owners.includes(event.owner))
  const fromMs = Math.min(at - 200, ...about.map((event) => event.at)) - 1
  return timeline(history, { owners, fromMs, toMs: at + 300 })
}

export function print(lines: readonly Line[]): string {
  return lines.map(({ at, place, text }) => `${at.toFixed(1).padStart(9)} ms  ${place.padEnd(6)} ${text}`).join('\n')
}

/** Owners and tokens by short names, in the order in which they appear. */
class Names {
  readonly #owners = new Map<string, string>()
  readonly #tokens = new Map<number, string>()

  constructor(history: History) {
    const counts = new Map<string, number>()
    for (const { owner, process } of history.of('attempt')) {
      const count = (counts.get(process) ?? 0) + 1
      counts.set(process, count)
      if (!this.#owners.has(owner)) this.#owners.set(owner, `${process}#${count}`)
    }
    const tokens = [...new Set(history.of('holds').map(({ token }) => token))].sort((a, b) => a - b)
    // By rank: what matters is which one is greater.
    for (const [index, token] of tokens.entries()) this.#tokens.set(token, String(index + 1))
  }

  owner(owner: string): string {
    return this.#owners.get(owner) ?? (owner === '' ? '' : owner.slice(-12))
  }

  token(token: number): string {
    return this.#tokens.get(token) ?? `…${String(token).slice(-7)}`
  }
}

function lineOf(event: HistoryEvent, names: Names): Line | undefined {
  const { at } = event
  const line = (place: string, text: string, weight: Line['weight']): Line => ({ at, place, text, weight })
  switch (event.kind) {
    case 'fault':
      return line(event.on, faultText(event.text), 'fault')
    case 'healed':
      return line('', 'everything heals', 'fault')
    case 'pause':
      return line(event.process, `stands still until ${event.untilMs.toFixed(1)} ms`, 'fault')
    case 'note':
      return line(event.process, event.text, 'lease')
    case 'crash':
      return line(event.process, 'crashes', 'fault')
    case 'closing':
      return line(event.process, 'closes its locks', 'fault')
    case 'issued':
      return line(
        event.process,
        `hands ${event.what} of ${names.owner(event.owner)} for ${event.node} to its driver`,
        'message',
      )
    case 'blank':
      return line('', 'no node knows that it has ever been in use', 'fault')
    case 'once':
      return line(event.process, `runs a job once, for at least ${event.atLeastMs} ms`, 'lease')
    case 'holds':
      return line(event.process, holdsText(event, names), 'lease')
    case 'adopted':
      return line(event.process, `has adopted the lease with token ${names.token(event.formerToken)}`, 'lease')
    case 'offered':
      return line(event.process, `lets others adopt the lease of ${names.owner(event.owner)}`, 'lease')
    case 'forced':
      return line(event.process, `ends the lease of ${names.owner(event.owner)} by force`, 'lease')
    case 'nested':
      return line(
        event.process,
        `a call inside of the lease with token ${names.token(event.token)}: ${event.outcome}`,
        'lease',
      )
    case 'effect':
      return line(
        'store',
        `${event.process} asks for the effect ${event.key}${event.ran ? ', which happens' : ''}`,
        'store',
      )
    case 'told':
      return line(event.process, `gets the result of the effect ${event.key}: ${event.value}`, 'store')
    case 'counted':
      return line(
        event.process,
        `gets the result of its write to the object ${event.resource}: ${event.value}`,
        'store',
      )
    case 'until':
      return line(
        event.process,
        `lease with token ${names.token(event.token)} is now valid until ${event.untilMs.toFixed(1)} ms`,
        'lease',
      )
    case 'ends':
      return line(event.process, `${leaseText(event.token, names)} is over: ${event.why}`, 'lease')
    case 'signal':
      return line(event.process, `signal of the lease with token ${names.token(event.token)} aborts`, 'lease')
    case 'write':
      return line('store', writeText(event, names), 'store')
    case 'return':
      return event.outcome === 'granted' ? undefined : line(event.process, `does not get it: ${event.outcome}`, 'lease')
    case 'send':
      return line(
        event.process,
        `${names.owner(event.owner)} sends ${event.what} to ${event.node}${event.again ? ' again' : ''}`,
        'message',
      )
    case 'exec':
      return line(event.node, `${event.what} of ${names.owner(event.owner)}: ${replyText(event.reply[0])}`, 'message')
    case 'heard':
      return line(event.process, `${names.owner(event.owner)} hears of ${event.what} from ${event.node}`, 'message')
    case 'dropped':
      return line(
        event.process,
        `${names.owner(event.owner)} never hears of ${event.what} from ${event.node}`,
        'message',
      )
    case 'attempt':
    case 'call':
    case 'closed':
    case 'left':
    case 'read':
    case 'rests':
    case 'setup':
    case 'shut':
    case 'stamped':
    case 'unnested':
    case 'run':
    case 'inspected':
      return undefined
    case 'start':
      return event.isOlder === true ? line(event.process, 'begins, with an older version', 'lease') : undefined
  }
}

/** A lock that was made by hand has no token. */
function leaseText(token: number, names: Names): string {
  return token === 0 ? 'its lock' : `lease with token ${names.token(token)}`
}

function holdsText({ resources, token, untilMs }: EventOf<'holds'>, names: Names): string {
  const until = untilMs === Infinity ? 'until it lets go' : `until ${untilMs.toFixed(1)} ms`
  if (token === 0) return `believes to have the lock, ${until}`
  return `has the lease on ${resources.join(', ')} with token ${names.token(token)}, valid ${until}`
}

function writeText(event: Extract<HistoryEvent, { kind: 'write' }>, names: Names): string {
  const { process, token, value, base, accepted, store } = event
  if (!accepted) return `refuses a write of ${process}: token ${names.token(token)} is stale`
  const lost = value === base + 1 ? '' : `, over ${base}: an update is lost`
  return `${store}: ${process} writes ${value} with token ${names.token(token)}${lost}`
}

function faultText(text: string): string {
  const { kind, node: _node, process: _process, ...rest } = JSON.parse(text) as Record<string, unknown>
  const details = Object.entries(rest).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? Math.round(value * 1000) / 1000 : String(value)}`,
  )
  return `${String(kind)}${details.length === 0 ? '' : ` (${details.join(', ')})`}`
}

function replyText(reply: unknown): string {
  if (reply instanceof Error) return reply.message.split(' ')[0]!
  if (Array.isArray(reply)) return reply.map((item) => String(item).slice(0, 20)).join(' ')
  return String(reply)
}
