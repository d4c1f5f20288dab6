import type { EventOf, History, Verdict } from '../history.ts'
import { exclusionBroken, orderBroken, type Broken } from './assumptions.ts'

/**
 * A lease that was handed off or offered is adopted once, by a greater token than it had, after it had ended where it was; and by nobody
 * once somebody else has had its resource. One that was offered goes on where it was, and is not renewed there after it was adopted.
 */
export function adoption(history: History): Verdict {
  const checker = 'adoption'
  const adopted = history.of('adopted')
  if (adopted.length === 0) return { checker, verdict: 'unknown', why: 'nobody adopted a lease' }
  const before = new Map<string, EventOf<'adopted'>>()
  for (const event of adopted) {
    const { at, owner, former } = event
    const wrong =
      twice(event, before.get(former)) ?? lower(event, history) ?? behind(event, history) ?? renewed(event, history)
    before.set(former, event)
    if (wrong === undefined) continue
    const { why, broken, at: seenAt = at } = wrong
    if (broken !== undefined && broken.at <= seenAt)
      return { checker, verdict: 'unknown', why: `${why}; before, ${broken.why}` }
    return { checker, verdict: 'false', why, at, owners: [former, owner] }
  }
  return { checker, verdict: 'true' }

  function twice({ process }: EventOf<'adopted'>, first: EventOf<'adopted'> | undefined): Wrong | undefined {
    if (first === undefined) return undefined
    const why = `${process} adopted a lease that ${first.process} had adopted before`
    return { why, broken: exclusionBroken(history) }
  }
}

interface Wrong {
  readonly why: string
  readonly broken: Broken | undefined
  /** If it was after the adoption. */
  readonly at?: number
}

function lower({ process, token, formerToken }: EventOf<'adopted'>, history: History): Wrong | undefined {
  if (token > formerToken) return undefined
  const why = `${process} adopted a lease with token ${formerToken} and got ${token}`
  return { why, broken: orderBroken(history) }
}

/** Where it was, it had ended; and nobody else had its resource since. */
function behind({ at, process, owner, former, resources }: EventOf<'adopted'>, history: History): Wrong | undefined {
  const broken = exclusionBroken(history)
  const offered = history.of('offered').find((event) => event.owner === former)
  const moved = offered ?? history.of('ends').find((event) => event.owner === former && event.why === 'moved')
  if (moved === undefined || moved.at > at)
    return { why: `${process} adopted a lease that had not been handed off`, broken: undefined }
  const other = history
    .of('holds')
    .filter((event) => event.at > moved.at && event.at < at && event.owner !== owner && event.untilMs > event.at)
    .find((event) => event.resources.some((resource) => resources.includes(resource)))
  if (other === undefined) return undefined
  return {
    why: `${process} adopted a lease although ${other.process} had its resource since it was handed off`,
    broken,
  }
}

/** A renewal that was asked for before it was adopted may be heard of later, and lasts for a ttl. */
function renewed({ at, process, former }: EventOf<'adopted'>, history: History): Wrong | undefined {
  const { maxTtlMs } = history.setup
  const later = history.of('until').find((event) => event.owner === former && event.untilMs > at + LATE * maxTtlMs)
  if (later === undefined) return undefined
  const why = `${later.process} renewed a lease that ${process} had adopted`
  return { why, broken: exclusionBroken(history), at: later.at }
}

/** Clocks run at other speeds, within the allowance. */
const LATE = 1.02
