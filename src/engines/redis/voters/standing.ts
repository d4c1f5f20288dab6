import { CLAMP_US } from '../scripts.ts'
import { LEVEL, type SitOutLevel, type NodeLook } from './stamp.ts'

/** What this process itself has seen of the quorum. */
export interface Memory {
  /** It has seen a trace of use on a node, or let one in: then the deployment is not new, also if the nodes forget later. */
  readonly inUse: boolean
  /** How long ago it last saw a quorum vote; undefined if never. */
  readonly votedAgoMs: number | undefined
}

export interface Rules {
  readonly restart: 'auto' | 'strict'
  readonly sitOutMs: number
}

/** May a node vote? */
export type Standing =
  /** It was let in, in its present run. */
  | { readonly kind: 'in' }
  /** It may be let in. */
  | { readonly kind: 'welcome'; readonly why: 'new' | 'forgets nothing' | 'has sat out' }
  | {
      readonly kind: 'out'
      readonly remainingMs: number
      readonly level: SitOutLevel
      /** It would be welcome if all nodes could be asked. */
      readonly whole: boolean
      readonly why: WhyOut
    }

export type WhyOut =
  | { readonly kind: 'restarted' | 'unknown' }
  /** It votes for clients that have nodes sit out for less. */
  | { readonly kind: 'another maxTtl'; readonly sitOutMs: number }

/** The other nodes, each as far as it answered. */
export type Others = readonly (NodeLook | undefined)[]

/** How often in a time of sitting out the stamps are dated while the quorum is in use. */
export const TOUCHES = 6
/** Redis counts a node's uptime in whole seconds. */
export const UPTIME_GRAIN_MS = 1000
/**
 * A node that forgot its counters numbers on from its clock. This much time must pass until its numbers are above all that it
 * has forgotten, also where leases are shorter: one client's proposals may have been ahead by the clamp, the next one's behind
 * by as much, and the nodes' own clocks may be a second apart.
 */
export const LEAST_SIT_OUT_MS = (2 * CLAMP_US) / 1000 + 1000

/**
 * Is the whole deployment new? Only if every node can be asked, none has a trace of use, and this process remembers no use. A majority is not enough: three nodes that restarted while the other two are cut off look just as new.
 */
export function isNew(looks: readonly (NodeLook | undefined)[], { inUse }: Memory, { restart }: Rules): boolean {
  return restart === 'auto' && !inUse && looks.every((look) => look?.isTraced === false)
}

/**
 * The standing of a node in a deployment that is not new. `others` is undefined if they were not asked.
 *
 * A node that was not let in since it started may have forgotten leases, or may have taken the place of a node that granted
 * them. Those leases can be extended until every client has seen the node as it is now. So it sits out from the first look at it,
 * also if it has been up for long. Only if nobody has used the quorum since the node started, it sits out from its start. Whether
 * the quorum was used, and whether the node is the copy of another one, is known only if all nodes answer.
 */
export function standingOf(
  look: NodeLook,
  others: Others | undefined,
  memory: Memory,
  rules: Rules & { readonly forgetsNothing: boolean },
): Standing {
  const { sitOutMs } = rules
  const { since, nowMs } = look
  if (look.isAdmitted) return { kind: 'in' }
  // It sat out for longer than we ask, or there was nothing to sit out for.
  if (look.otherSitOuts.some((otherMs) => otherMs > sitOutMs)) return { kind: 'welcome', why: 'has sat out' }
  if (since !== undefined && nowMs - since.ms >= sitOutMs) return { kind: 'welcome', why: 'has sat out' }
  const answers = others?.filter((other) => other !== undefined)
  const all = answers !== undefined && answers.length === others?.length ? answers : undefined
  if (all !== undefined && mayHaveSatOut(look, sitOutMs) && isUnusedSinceStart(look, all, memory, sitOutMs)) {
    return { kind: 'welcome', why: 'has sat out' }
  }
  const whole = remembersAll(look, rules)
  if (whole && all?.every(({ id }) => id !== look.id) === true) return { kind: 'welcome', why: 'forgets nothing' }
  return {
    kind: 'out',
    remainingMs: since === undefined ? sitOutMs : since.ms + sitOutMs - nowMs,
    level: levelOf([look, ...(answers ?? [])], memory, rules),
    whole: whole && all === undefined,
    why: whyOut(look),
  }
}

/** Can the answers of the other nodes change its standing, in a deployment that is not new? */
export function dependsOnOthers(look: NodeLook, rules: Parameters<typeof standingOf>[3]): boolean {
  return mayHaveSatOut(look, rules.sitOutMs) || remembersAll(look, rules)
}

function mayHaveSatOut({ since, isTraced, uptimeMs }: NodeLook, sitOutMs: number): boolean {
  return since === undefined && isTraced && uptimeMs >= sitOutMs
}

/** A stamp that was dated shortly before the node started leaves open whether the quorum was used after that. */
function isUnusedSinceStart(look: NodeLook, others: readonly NodeLook[], memory: Memory, sitOutMs: number): boolean {
  const usedAgoMs = [look, ...others].reduce(
    (least, { seenMs, nowMs }) => (seenMs === undefined ? least : Math.min(least, nowMs - seenMs)),
    memory.votedAgoMs ?? Infinity,
  )
  return usedAgoMs >= look.uptimeMs + sitOutMs / TOUCHES + UPTIME_GRAIN_MS
}

/**
 * It was let in, and its persistence forgot nothing then, as now. A copy of its data that was put back has all that, too; but its
 * last use is as long ago as the copy is old.
 */
function remembersAll(look: NodeLook, rules: Parameters<typeof standingOf>[3]): boolean {
  const { isUnbroken, isFirstHand, id, wasDurable, seenMs, nowMs } = look
  if (rules.restart !== 'auto' || !rules.forgetsNothing || !isFirstHand || id === '') return false
  return isUnbroken && wasDurable && seenMs !== undefined && Math.abs(nowMs - seenMs) <= rules.sitOutMs
}

function levelOf(looks: readonly NodeLook[], { inUse, votedAgoMs }: Memory, { restart }: Rules): SitOutLevel {
  if (restart === 'strict' || votedAgoMs !== undefined) return LEVEL.sure
  return inUse || looks.some(({ isTraced }) => isTraced) ? LEVEL.used : LEVEL.unsure
}

function whyOut({ otherSitOuts, isStamped }: NodeLook): WhyOut {
  if (otherSitOuts.length > 0) return { kind: 'another maxTtl', sitOutMs: Math.max(...otherSitOuts) }
  return { kind: isStamped ? 'restarted' : 'unknown' }
}
