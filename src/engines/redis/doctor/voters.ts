import type { Finding } from '../../../engine.ts'
import { findings } from '../../shared/findings.ts'
import type { WhyOut } from '../voters/standing.ts'
import { quorumOf } from '../votes.ts'
import type { ServerFacts } from './facts.ts'
import { keepsNothing } from './persistence.ts'
import type { RedisCheckPlan } from './server.ts'

const report = findings('redis')

/** Which of the nodes may vote now, and what could be wrong about that later? */
export function checkVoters(
  plan: RedisCheckPlan,
  seen: readonly { readonly facts: ServerFacts }[],
): readonly Finding[] {
  const { standings = [] } = plan
  if (standings.length === 0) return []
  return [sittingOut(plan), ...otherTtls(plan), ...forgetful(plan, seen)]
}

function sittingOut({ standings = [] }: RedisCheckPlan): Finding {
  const id = 'voters'
  const size = standings.length
  const needed = quorumOf(size)
  const sitting = standings.flatMap(({ label, standing, look }) =>
    standing?.kind === 'out' ? [{ label, ...standing, hasBegun: look?.since !== undefined }] : [],
  )
  const voting = standings.filter(({ standing }) => standing !== undefined && standing.kind !== 'out').length
  const may = `${voting} of ${size} nodes may vote; ${needed} are needed`
  // Nodes that could not be asked have a finding of their own.
  if (sitting.length === 0) return report.ok(id, `${may}.`, 'None of the nodes that answer has to sit out.')
  const begun = sitting.filter(({ hasBegun }) => hasBegun)
  const idle = sitting.filter(({ hasBegun }) => !hasBegun)
  const found = `${[may, ...timeOut(begun, 'more'), ...timeOut(idle, LATER)].join('; ')}.`
  const isOne = sitting.length === 1
  const why = `${causeOf(sitting)}, and may have forgotten leases that are not over.`
  const remedy =
    voting + sitting.length < needed
      ? 'Bring the other nodes back: too few answer for a majority, also once those that sit out vote.'
      : idle.length === 0
        ? `Wait: ${isOne ? 'it votes by itself' : 'they vote by themselves'} after that. Do not restart another node before.`
        : 'Run `ringfence init`, or let a client ask for a lease: that starts the time. Do not restart another node before it is over.'
  return voting < needed
    ? report.critical(id, found, `${untilMajority(begun, idle, needed - voting)} ${why}`, remedy)
    : report.warning(id, found, `Locks work, but fewer nodes may fail. ${why}`, remedy)
}

function causeOf(sitting: readonly SittingNode[]): string {
  const isOne = sitting.length === 1
  if (sitting.every(({ why }) => why.kind === 'another maxTtl'))
    return `${isOne ? 'It has' : 'They have'} sat out only for the shorter maxTtl of other clients`
  return `${isOne ? 'It restarted, or is' : 'They restarted, or are'} new among the others`
}

interface SittingNode {
  readonly label: string
  readonly remainingMs: number
  readonly why: WhyOut
}

const LATER = 'from the next attempt on'
/** Nodes whose times differ by no more than this are listed together, with the longest time. */
const SAME_TIME_MS = 1000

/** When a majority may vote again: as soon as the first `missing` nodes do. */
function untilMajority(begun: readonly SittingNode[], idle: readonly SittingNode[], missing: number): string {
  const inOrder = [...begun, ...idle].sort((some, other) => some.remainingMs - other.remainingMs)
  const last = inOrder[missing - 1]
  if (last === undefined) return 'No lease can be granted until more nodes answer.'
  const from = inOrder.slice(0, missing).some((node) => idle.includes(node)) ? ` ${LATER}` : ''
  return `No lease can be granted for ${wholeSeconds(last.remainingMs)}${from}.`
}

function timeOut(nodes: readonly SittingNode[], rest: string): string[] {
  const times = nodes.map(({ remainingMs }) => remainingMs)
  const isTogether = Math.max(...times) - Math.min(...times) <= SAME_TIME_MS
  if (nodes.length > 1 && !isTogether) return nodes.flatMap((node) => timeOut([node], rest))
  if (nodes.length === 0) return []
  const names = nodes.map(({ label }) => label).join(', ')
  return [`${names} ${nodes.length === 1 ? 'sits' : 'sit'} out for ${wholeSeconds(Math.max(...times))} ${rest}`]
}

function wholeSeconds(ms: number): string {
  return `${Math.ceil(ms / 1000)} s`
}

/** A lease that is longer than others allow for may be forgotten by a node that votes again for them. */
function otherTtls({ standings = [], sitOutMs = 0 }: RedisCheckPlan): readonly Finding[] {
  const others = [...new Set(standings.flatMap(({ look }) => look?.otherSitOuts ?? []))].sort((a, b) => a - b)
  if (others.length === 0) return []
  return [
    report.warning(
      'max-ttl',
      `Clients with another maxTtl use these nodes: they have a node sit out for ${others.map(seconds).join(', ')}, ` +
        `we for ${seconds(sitOutMs)}.`,
      'A node that restarted votes for the clients with the shorter time while it may have forgotten leases of the others.',
      'Give all clients of these nodes the same maxTtl. (After a change, this finding stays until the nodes have restarted.)',
    ),
  ]
}

function seconds(ms: number): string {
  return `${ms / 1000} s`
}

function forgetful({ restart }: RedisCheckPlan, seen: readonly { readonly facts: ServerFacts }[]): readonly Finding[] {
  if (restart !== 'auto' || seen.length === 0 || !seen.every(({ facts }) => keepsNothing(facts))) return []
  return [
    report.warning(
      'all-forget',
      "No node writes anything to disk, and restart is 'auto'.",
      'If all nodes restart within one renewal of every holder, a process that starts after that takes the quorum for a ' +
        'new one and may get a lease that is still held.',
      "Let at least one node keep its data (appendonly yes), or set restart: 'strict'.",
    ),
  ]
}
