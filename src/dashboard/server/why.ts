import type { Diagnosis, HistoryEntry, LineRow, NodeRow, WhyLine } from '../protocol.ts'
import type { KnownLease } from './board.ts'
import { ownerParts } from '../../owner.ts'
import { labelOf } from './history.ts'

export interface WhyFacts {
  readonly resource: string
  readonly rows: readonly KnownLease[]
  readonly line: readonly LineRow[]
  readonly entries: readonly HistoryEntry[]
  readonly nodes: readonly NodeRow[]
  readonly diagnosis: Diagnosis | undefined
  /** Why the last look failed. */
  readonly trouble: string | null
  readonly nowMs: number
}

type Said = WhyLine['said']

/** A holder renews when a third of the ttl is over. By then, one that renews has done it. */
const OVERDUE = 0.6
/** With this many new holders in a minute, it is not a single one that keeps it. */
const BUSY = 4
const STUCK_PAGE = 'docs/operating/stuck.md'

/** What a person wants to know who waits for a resource, in sentences, and what to do next. */
export function whyStuck(facts: WhyFacts): WhyLine[] {
  const { rows, trouble } = facts
  const lines: WhyLine[] = []
  if (trouble !== null)
    lines.push(
      warning(`The engine could not be looked through: ${trouble}. What follows is of the last look that worked.`),
    )
  const [first] = rows
  if (first === undefined) lines.push(...free(facts))
  else if (first.offered) lines.push(offer(first, facts.nowMs))
  else lines.push(...rows.slice(0, 3).flatMap((row) => holder(row, facts.nowMs)))
  if (rows.length > 3) lines.push(fact(`${rows.length - 3} more share it.`))
  lines.push(...waiting(facts), ...servers(facts), ...doctor(facts), ...next(facts))
  return lines
}

function free({ entries }: WhyFacts): WhyLine[] {
  const [last] = entries
  if (last === undefined) return [fact('Nobody holds it, and nothing was seen of it.')]
  const how = { released: 'was released', lost: 'ran out', forced: 'was released by force' }[last.type as string]
  if (how === undefined) return [fact('Nobody holds it now.')]
  return [fact('Nobody holds it now: the lease of ', nameOf(last.owner), ` ${how} ${time(last.agoMs)} ago.`)]
}

/** The server passes it on by itself when its time is over. */
function offer({ owner, endsAtMs = 0 }: KnownLease, nowMs: number): WhyLine {
  const left = time(endsAtMs - nowMs)
  return fact(
    'Nobody holds it now. It is offered to ',
    nameOf(owner),
    `, the first in line, for ${left} more; then to the next.`,
  )
}

function holder(row: KnownLease, nowMs: number): WhyLine[] {
  const { owner, token, sinceMs, heldExact, key, resource } = row
  const { note } = ownerParts(owner)
  const held = `${heldExact ? '' : 'at least '}${time(nowMs - sinceMs)}`
  return [
    fact(
      nameOf(owner),
      `${key === resource ? ' has held it' : ' shares it'} for ${held}, with token ${token}`,
      ...(note === undefined ? ['.'] : ['. It says what for: ', { name: note }]),
    ),
    ...renewal(row, nowMs),
  ]
}

/** Whether the last look saw it as one that is renewed. What came after that look is not known yet, so it does not count. */
function isRenewed({ ttlMs, marks, lookedMs }: KnownLease): boolean {
  const last = marks.renewals.at(-1)
  return last !== undefined && ttlMs !== undefined && lookedMs - last < OVERDUE * ttlMs
}

/** Its end is the same far away at every look, so that the engine does not know it. */
function isEndUnknown({ looks, countsDown, marks }: KnownLease): boolean {
  return looks > 2 && !countsDown && !marks.isHeard
}

function renewal(row: KnownLease, nowMs: number): WhyLine[] {
  const { endsAtMs, ttlMs, seenMs, lookedMs, marks } = row
  if (endsAtMs === undefined || ttlMs === undefined)
    return [warning('It has no end: other software set it, and it stays until somebody removes it.')]
  if (isEndUnknown(row))
    return [
      fact(
        'This engine does not tell when it was renewed, nor when it ends: its servers end it some time after its holder has stopped renewing.',
      ),
    ]
  const left = endsAtMs - nowMs
  const ends =
    left > 0
      ? `Without a renewal it ends by itself in ${time(left)}.`
      : 'By now it is over, or was renewed: the next look will tell.'
  const lines: WhyLine[] = []
  const last = marks.renewals.at(-1)
  if (last !== undefined && isRenewed(row))
    lines.push(
      fact(
        `It is renewed: ${times(marks.renewed)}, the last time ${time(nowMs - last)} ago. So its process runs and reaches the servers.`,
      ),
    )
  else if (last !== undefined)
    lines.push(
      warning(
        `It was renewed ${times(marks.renewed)}, but not for ${time(nowMs - last)}, although its time is ${time(ttlMs)}. ` +
          `Its process may be dead, stopped or cut off, or it renews no more on purpose. ${ends}`,
      ),
    )
  else if (lookedMs - seenMs < OVERDUE * ttlMs)
    lines.push(fact(`No renewal was seen yet, in ${time(lookedMs - seenMs)} of looking. ${ends}`))
  else
    lines.push(
      warning(
        `No renewal was seen in ${time(lookedMs - seenMs)}. Its process may be dead, stopped or cut off, or it does not renew on purpose. ${ends}`,
      ),
    )
  const doubt = marks.doubts.at(-1)
  if (doubt !== undefined)
    lines.push(
      warning(
        `A renewal failed ${times(marks.doubts.length)}, the last time ${time(nowMs - doubt)} ago: its process could not reach the servers.`,
      ),
    )
  return lines
}

function waiting({ rows, line }: WhyFacts): WhyLine[] {
  const [row] = rows
  if (row === undefined) return []
  if (row.waiters === undefined) return [fact('Who waits is not known: this engine has no queue on its servers.')]
  if (row.waiters === 0) return [fact('Nobody waits for it.')]
  const count = row.waiters === 1 ? 'One waits for it' : `${row.waiters} wait for it`
  const [first] = line
  if (first === undefined) return [fact(`${count}.`)]
  const since = first.waitedMs === null ? '.' : `, for ${time(first.waitedMs)}.`
  return [fact(`${count}. The first in line is `, nameOf(first.owner), since)]
}

function servers({ nodes }: WhyFacts): WhyLine[] {
  const silent = nodes.filter(({ error }) => error !== undefined)
  const sitOut = nodes.filter(({ sitsOutMs }) => sitsOutMs !== undefined)
  return [
    ...silent.map(({ node, error }) => warning({ name: node }, ` does not answer: ${error}.`)),
    ...sitOut.map(({ node, sitsOutMs, sitsOutLater }) =>
      warning(
        { name: node },
        ` sits out for ${time(sitsOutMs!)}${sitsOutLater === true ? ' from the next attempt on' : ' more'}: it restarted, and may have forgotten leases.`,
      ),
    ),
  ]
}

function doctor({ diagnosis, nodes: states }: WhyFacts): WhyLine[] {
  if (diagnosis === undefined) return []
  const isSilent = (name: string): boolean => states.some(({ node, error }) => node === name && error !== undefined)
  const bad = diagnosis.findings.filter(({ severity, facts }) => {
    const names = facts.flatMap(({ nodes }) => nodes)
    // That a server does not answer was said already.
    const isSaid = names.length > 0 && names.every(isSilent)
    return !isSaid && (severity === 'critical' || severity === 'warning')
  })
  return bad.map(({ facts, severity }) => warning(`The doctor, ${severity}: ${facts[0]?.found ?? ''}`))
}

function next({ resource, rows, entries }: WhyFacts): WhyLine[] {
  const [row] = rows
  if (row === undefined || row.offered) return [advice('It is not stuck: nobody holds it.')]
  const begun = entries.filter(({ type, agoMs }) => agoMs < 60_000 && (type === 'granted' || type === 'handed over'))
  if (begun.length >= BUSY)
    return [
      advice(
        `It was granted ${begun.length} times in the last minute. No holder keeps it: it is a bottleneck (docs/background/bottleneck.md).`,
      ),
    ]
  const name = typed(resource)
  const release = name === undefined ? [] : [' ', { code: `ringfence release --force ${name}` }]
  const caution =
    'The old holder learns of it with its next renewal and works on until then, so only a store that checks tokens is safe.'
  if (row.endsAtMs !== undefined && !isRenewed(row) && !isEndUnknown(row))
    return [
      advice('Wait: if nothing renews it, it ends by itself, and the next one gets it.'),
      advice(`If it is still there after that, it is renewed. ${STUCK_PAGE} has the steps.`),
    ]
  const [, host, pid] = /^([\w.-]{1,255}):(\d{1,10})$/.exec(labelOf(row.owner) ?? '') ?? []
  const where =
    pid === undefined ? 'Find its process by its name, and see what it waits for:' : `On ${host}, see what it does:`
  return [
    advice(where, ' ', { code: `ps -o pid,stat,etime,args -p ${pid ?? 'PID'}` }),
    advice('If you can end that process, end it; it releases the lease:', ' ', { code: `kill -TERM ${pid ?? 'PID'}` }),
    advice(`Otherwise release the lease. ${caution}`, ...release),
    advice(`${STUCK_PAGE} has these steps, and what the old holder does.`),
  ]
}

/** For a shell. A name that is not seen as it is, or that is taken for an option, has no command that could be copied. */
function typed(name: string): string | undefined {
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(name) || name.startsWith('-')) return undefined
  return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", String.raw`'\''`)}'`
}

function nameOf(owner: string): { readonly name: string } {
  return { name: labelOf(owner) ?? owner }
}

function fact(...said: Said): WhyLine {
  return { kind: 'fact', said }
}

function warning(...said: Said): WhyLine {
  return { kind: 'warning', said }
}

function advice(...said: Said): WhyLine {
  return { kind: 'next', said }
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}

/** Two units at most. */
function time(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`
}
