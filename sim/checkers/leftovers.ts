import type { EventOf, History, Verdict } from '../history.ts'

type Step = 'send' | 'exec' | 'heard' | 'dropped' | 'issued'

/** How much slower than all others a server's clock may be. */
const LATE = 1.05

/** The scripts that put a lock key on a node. */
const TAKING = new Set(['acquire', 'handOver'])

/**
 * Whatever a live client was granted, it also gives back: on every node where a grant took effect and no release did, the
 * client must have sent one after it heard of the grant, or of its unknown outcome. That one may be lost.
 */
export function cleanUp(history: History): Verdict {
  const checker = 'clean-up'
  const crashed = new Set(history.of('crash').map(({ process }) => process))
  const resting = new Set([
    ...history.of('once').flatMap(({ owner, atLeastMs }) => (atLeastMs > 0 ? [owner] : [])),
    ...history.of('ends').flatMap(({ owner, why }) => (why === 'moved' ? [owner] : [])),
  ])
  const askedBy = new Map(history.of('attempt').map(({ owner, process }) => [owner, process]))
  const byPlace = new Map<string, EventOf<Step>[]>()
  for (const event of history.of('send', 'exec', 'heard', 'dropped', 'issued')) {
    if (crashed.has(event.process)) continue
    for (const owner of [event.owner, event.former]) {
      const place = `${event.node} ${owner}`
      const events = byPlace.get(place)
      // What `once` leaves behind runs out by itself, and so does what was handed off, unless another process adopts it.
      if (owner === '' || resting.has(owner)) continue
      if (events === undefined) byPlace.set(place, [event])
      else events.push(event)
    }
  }
  for (const [place, events] of byPlace) {
    const mine = (owner: string): boolean => place.endsWith(` ${owner}`)
    // A request that was sent again is known by the answer that was heard. What an old connection delivers after that,
    // nobody can know of: its time to live ends it.
    const last = new Map<number, EventOf<'exec'>>()
    const answered = new Set<number>()
    for (const event of events) {
      const isHeard = event.kind === 'exec' && !answered.has(event.id) && !(event.late && last.has(event.id))
      if (isHeard) last.set(event.id, event)
      if (event.kind === 'heard' || event.kind === 'dropped') answered.add(event.id)
    }
    // What another process gives back is for a holder that goes on. One that does not leaves it for its ttl.
    const isOwn = ({ owner, process }: EventOf<'exec'>): boolean =>
      mine(owner) && (askedBy.get(owner) ?? process) === process
    const grant = [...last.values()].findLast((event) => isGrant(event) && isOwn(event))
    if (grant === undefined) continue
    const ends = (event: EventOf<Step>, kind: string): boolean =>
      event.kind === kind && !isFailed(event) && (event.what === 'release' || mine(event.former) || saysGone(event))
    if (events.slice(events.indexOf(grant)).some((event) => ends(event, 'exec'))) continue
    // Until its answer comes or the driver gives up, the grant is waited for: a release would be behind it in the same line.
    const since = events.find(({ kind, id }) => (kind === 'heard' || kind === 'dropped') && id === grant.id)
    if (since === undefined) continue
    // A process that stood still while its time ran out finds nothing to give back.
    const overMs = grant.at + LATE * history.setup.ttlMs
    if (
      history
        .of('pause')
        .some((pause) => pause.process === grant.process && pause.at <= grant.at && pause.untilMs > overMs)
    )
      continue
    if (events.slice(events.indexOf(since)).some((event) => ends(event, 'send') || ends(event, 'issued'))) continue
    // A release that was sent before, and is still on its way, is behind the grant.
    if (events.some((event) => ends(event, 'send') && !last.has(event.id) && !answered.has(event.id))) continue
    const { node, process, owner, at } = grant
    return {
      checker,
      verdict: 'false',
      why: `${process} was granted ${node} and never gave it back`,
      at,
      owners: [owner],
    }
  }
  return { checker, verdict: 'true' }
}

function isFailed(event: EventOf<Step>): boolean {
  return event.kind === 'exec' && event.reply[0] instanceof Error
}

/** A confirmation or a renewal that found nothing of ours. */
function saysGone(event: EventOf<Step>): boolean {
  if (event.kind !== 'exec' || !(event.what === 'confirm' || event.what === 'extend')) return false
  const [reply] = event.reply
  return Array.isArray(reply) && reply[0] === 0
}

function isGrant({ what, reply }: EventOf<'exec'>): boolean {
  return TAKING.has(what) && !(reply[0] instanceof Error) && !Array.isArray(reply[0])
}

/** No lock key is left at the end, and none without an end or with more than a lease's time. */
export function timeToLive(history: History): Verdict {
  const checker = 'no key beyond its ttl'
  const { resources, ttlMs } = history.setup
  const setBack = history.of('fault').some(({ name, ms }) => name === 'jump' && ms < 0)
  for (const { key, node, leftMs, at, value } of history.of('left')) {
    if (!resources.includes(key)) continue
    if (leftMs > ttlMs && !setBack) {
      return {
        checker,
        verdict: 'false',
        why: `${key} on ${node} has ${leftMs} ms left of ${ttlMs}`,
        at,
        owners: [value],
      }
    }
    return {
      checker,
      verdict: 'false',
      why: `${key} is left on ${node}, long after all was given back`,
      at,
      owners: [value],
    }
  }
  return { checker, verdict: 'true' }
}

/** A process that has closed its locks has nothing left of them: no timer, no waiter, no subscription. */
export function leaks(history: History): Verdict {
  const checker = 'no leaks'
  for (const { process, timers, subscriptions, pending, at } of history.of('closed')) {
    if (timers + subscriptions + pending === 0) continue
    const why = `${process} has ${timers} timers, ${subscriptions} subscriptions and ${pending} callers left after close()`
    return { checker, verdict: 'false', why, at, owners: [] }
  }
  return { checker, verdict: 'true' }
}

/**
 * More commands than that from one process in a second are a loop, not work; and more renewals of a lease than these, too. What a driver
 * sends again after a lost connection is not another renewal.
 */
const MOST_A_SECOND = { commands: 4_000, renewals: 200 }

export function calm(history: History): Verdict {
  const checker = 'no busy loop'
  const counts = new Map<string, number>()
  const tooMany = (name: string, most: number): boolean => {
    const count = (counts.get(name) ?? 0) + 1
    counts.set(name, count)
    return count > most
  }
  for (const { process, node, owner, what, at, again } of history.of('send')) {
    const second = `${process} ${Math.floor(at / 1000)}`
    const why = tooMany(second, MOST_A_SECOND.commands)
      ? `${process} sent more than ${MOST_A_SECOND.commands} commands within a second`
      : what === 'extend' && !again && tooMany(`${second} ${node} ${owner}`, MOST_A_SECOND.renewals)
        ? `${process} renewed a lease more than ${MOST_A_SECOND.renewals} times within a second`
        : undefined
    if (why !== undefined) return { checker, verdict: 'false', why, at, owners: [owner] }
  }
  return { checker, verdict: 'true' }
}
