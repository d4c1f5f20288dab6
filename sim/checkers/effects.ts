import type { EventOf, History, Verdict } from '../history.ts'

/** What the server rounds. */
const ROUNDED_MS = 2

/**
 * An effect happens once while its record is kept. Everybody who asks for it is told the result of the run that counts, and only
 * the caller of that run that it was its own. Nothing takes effect under an older token after a newer one.
 */
export function effects(history: History): Verdict {
  const checker = 'effects'
  const reached = history.of('effect', 'told')
  if (reached.length === 0) return { checker, verdict: 'unknown', why: 'nothing was to take effect' }
  const runs = new Map<string, EventOf<'effect'>[]>()
  const highest = new Map<string, number>()
  for (const event of reached) {
    const name = `${event.resource} ${event.key}`
    const before = runs.get(name) ?? []
    const why =
      event.kind === 'told'
        ? wronglyTold(event, before)
        : (again(event, before.at(-1)) ?? stale(event, highest.get(event.resource) ?? 0))
    if (why !== undefined) return { checker, verdict: 'false', why, at: event.at, owners: [] }
    if (event.kind === 'told') continue
    highest.set(event.resource, event.token)
    if (event.ran) runs.set(name, [...before, event])
  }
  return { checker, verdict: 'true' }
}

function again({ at, process, key, ran }: EventOf<'effect'>, last: EventOf<'effect'> | undefined): string | undefined {
  if (!ran || last === undefined || at >= last.at + last.keepMs - ROUNDED_MS) return undefined
  return `the effect ${key} of ${last.process} happened again for ${process}, ${Math.round(at - last.at)} ms later`
}

function stale({ process, key, token }: EventOf<'effect'>, highest: number): string | undefined {
  if (token >= highest) return undefined
  return `the effect ${key} of ${process} was let in with token ${token} after ${highest}`
}

function wronglyTold(
  { process, key, token, value, ran, asked }: EventOf<'told'>,
  runs: readonly EventOf<'effect'>[],
): string | undefined {
  if (!runs.some((run) => run.value === value && run.token === token))
    return `${process} got the result of the effect ${key}: ${value}, token ${token}, which did not happen`
  if (ran && !value.startsWith(`${asked} `))
    return `${process} was told that it made the effect ${key}, which was ${value}`
  return undefined
}
