import type { Deadlines } from '../../deadlines.ts'
import type { InLine, LeaseInfo } from '../../engine.ts'
import { asError, type NodeFailure } from '../../errors.ts'
import { isOurs } from '../../owner.ts'
import { inTime } from '../shared/in-time.ts'
import { ask } from './ask.ts'
import { namingRight } from './drivers/server-errors.ts'
import { failureOf, noAnswer } from './errors.ts'
import { FENCE_PATTERN, resourceOfFence } from './keys.ts'
import type { RedisNode } from './node.ts'
import type { NodeLease, NodeReader } from './steps.ts'
import { quorumOf } from './votes.ts'

interface InspectQuorumPlan {
  readonly prefix: string
  readonly deadlines: Deadlines
  readonly timeoutMs: number
  readonly resource: string | undefined
  /** The nodes that may not vote, with the reason: they may have forgotten leases, so their answers prove nothing. */
  barred(): Promise<readonly NodeFailure[]>
}

/** How many keys a node scans at a time: that takes well below a millisecond, so that a scan does not hold up the locks. */
const SCAN_COUNT = 1000
/** More than a server has memory for keys. */
const MOST_PAGES = 1_000_000
/** How many leases a node is asked for at a time, for the same reason. Several requests may be under way. */
const LEASES_A_TIME = 250

/**
 * Leases that a quorum of nodes agrees on, or may agree on: a node that does not answer, or may not vote, counts for every
 * owner, so that no lease that is held is missing. Rejects without a quorum of answers: nothing can be said then. Every lease
 * has a fence key, so the nodes are scanned for fence keys.
 */
export async function* inspectQuorum(nodes: readonly RedisNode[], plan: InspectQuorumPlan): AsyncIterable<LeaseInfo> {
  if (plan.resource !== undefined) {
    yield* await leasesOf(nodes, [plan.resource], { ...plan, size: nodes.length })
    return
  }
  const quorum = quorumOf(nodes.length)
  const failures: NodeFailure[] = []
  // All at once, so that several silent nodes take no longer than one.
  const [barred, ...begun] = await Promise.all([
    plan.barred(),
    ...nodes.map((node) => new Scan(node, plan).begin(failures)),
  ])
  const scans = begun.filter((scan) => scan !== undefined).filter(({ node }) => !isAmong(barred, node))
  failures.push(...barred.filter(({ node }) => !failures.some((failure) => failure.node === node)))
  const answering = scans.map(({ node }) => node)
  if (answering.length < quorum) throw failureOf(failures, [], { quorum, size: nodes.length })
  const seen = new Set<string>()
  // A node may have missed a grant that a quorum holds, so N - q + 1 of them must be looked through to see all.
  let missing = nodes.length - quorum + 1
  for (const scan of scans) {
    if (missing === 0) return
    let keys: string[] | undefined
    while ((keys = await scan.page(failures)) !== undefined) {
      const fresh = keys
        .map((key) => resourceOfFence(plan.prefix, key))
        .filter((resource) => resource !== undefined)
        .filter((resource) => !seen.has(resource))
      for (const resource of fresh) seen.add(resource)
      const names = [...new Set(fresh)].sort()
      const parts = Array.from({ length: Math.ceil(names.length / LEASES_A_TIME) }, (_, index) =>
        leasesOf(answering, names.slice(index * LEASES_A_TIME, (index + 1) * LEASES_A_TIME), {
          ...plan,
          size: nodes.length,
          barred: () => Promise.resolve([]),
        }),
      )
      yield* (await Promise.all(parts)).flat()
    }
    if (scan.isComplete) missing--
  }
  if (missing > 0) throw failureOf(failures, [], { quorum, size: nodes.length })
}

/** Looks through the fence keys of one node, page by page. */
class Scan {
  readonly node: RedisNode
  isComplete = false
  readonly #pages: AsyncIterator<string[]>
  #first: string[] | undefined

  constructor(node: RedisNode, plan: InspectQuorumPlan) {
    this.node = node
    this.#pages = fenceKeys(node, plan)[Symbol.asyncIterator]()
  }

  /** Asks for the first page; undefined if the node does not answer. */
  async begin(failures: NodeFailure[]): Promise<this | undefined> {
    this.#first = await this.page(failures)
    return this.#first === undefined ? undefined : this
  }

  /** Undefined when there are no more, or the node has failed. */
  async page(failures: NodeFailure[]): Promise<string[] | undefined> {
    const first = this.#first
    this.#first = undefined
    if (first !== undefined) return first
    try {
      const { done, value } = await this.#pages.next()
      if (done !== true) return value
      this.isComplete = true
    } catch (error) {
      failures.push({ node: this.node.label, cause: asError(error) })
    }
    return undefined
  }
}

/** At least one page, which may be empty: many keys may lie between two fence keys. */
async function* fenceKeys(node: RedisNode, { deadlines, timeoutMs }: InspectQuorumPlan): AsyncIterable<string[]> {
  const silence = (): Error => noAnswer(timeoutMs, node.client)
  for (const master of await inTime(node.client.masters(), deadlines, timeoutMs, { silence })) {
    let cursor = '0'
    let pages = 0
    do {
      const command = ['SCAN', cursor, 'MATCH', FENCE_PATTERN, 'COUNT', String(SCAN_COUNT)]
      const reply = await inTime(master.run(command), deadlines, timeoutMs, { silence }).catch((error: unknown) => {
        throw namingRight(error)
      })
      const [next, keys] = Array.isArray(reply) ? (reply as unknown[]) : []
      if (typeof next !== 'string' || !Array.isArray(keys) || !keys.every((key) => typeof key === 'string'))
        throw new Error(`the server answered SCAN with nonsense: ${(JSON.stringify(reply) ?? '').slice(0, 120)}`)
      // A cursor is a place in the server's table.
      if (++pages > MOST_PAGES || (next === cursor && next !== '0'))
        throw new Error(`the server's SCAN has no end: cursor ${next.slice(0, 40)}`)
      cursor = next
      yield keys
    } while (cursor !== '0')
  }
}

/** `size`: of the whole quorum, also where some of its nodes are known not to answer. */
async function leasesOf(
  nodes: readonly RedisNode[],
  resources: readonly string[],
  plan: InspectQuorumPlan & { readonly size: number },
): Promise<LeaseInfo[]> {
  const heard = new Map<RedisNode, readonly NodeLease[]>()
  const failures: NodeFailure[] = []
  const asked = ask(nodes, {
    deadlines: plan.deadlines,
    timeoutMs: plan.timeoutMs,
    send: (node) => inspectNode(node, resources),
    heard: (index, answer) => {
      if (answer.kind === 'answer') heard.set(nodes[index]!, answer.value)
      else failures.push({ node: nodes[index]!.label, cause: answer.cause })
      return false
    },
  })
  const [barred] = await Promise.all([plan.barred(), asked])
  failures.push(...barred.filter(({ node }) => !failures.some((failure) => failure.node === node)))
  const answers = [...heard].filter(([node]) => !isAmong(barred, node)).map(([, answer]) => answer)
  const { size } = plan
  if (answers.length < quorumOf(size)) throw failureOf(failures, resources, { quorum: quorumOf(size), size })
  return resources.flatMap((resource, index) =>
    agreed(
      resource,
      answers.map((answer) => answer[index]!),
      size,
    ),
  )
}

function isAmong(failures: readonly NodeFailure[], { label }: RedisNode): boolean {
  return failures.some(({ node }) => node === label)
}

async function inspectNode(node: RedisNode, resources: readonly string[]): Promise<readonly NodeLease[]> {
  if (!node.client.cluster || resources.length === 1) return node.inspect(node.keys(resources))
  // On a Cluster each may be in a slot of its own.
  return (await Promise.all(resources.map((resource) => node.inspect(node.keys([resource]))))).flat()
}

/** What one node says of one holder. */
interface LeaseVote extends NodeReader {
  readonly fence: number
  readonly nowUs: number
}

/**
 * The owner that a quorum of nodes names, or would name if the others had answered; of readers, each that is one on a quorum. With the time
 * after which fewer than a quorum hold the lease, and its token.
 */
function agreed(resource: string, answers: readonly NodeLease[], size: number): LeaseInfo[] {
  const writers = votesFor(answers, ({ readers, owner, remainingMs }) =>
    readers.length > 0 || owner === '' ? [] : [{ owner, remainingMs }],
  )
  const readers = votesFor(answers, (answer) => answer.readers)
  const isShared = most(readers) > most(writers)
  const holders = [...(isShared ? readers : writers).values()].sort((some, others) => others.length - some.length)
  const quorum = quorumOf(size)
  const agreedOn = holders.filter((votes) => votes.length + size - answers.length >= quorum)
  if (agreedOn.length === 0) return offered(resource, answers, size)
  return agreedOn.slice(0, isShared ? agreedOn.length : 1).map((votes) => ({
    resource,
    owner: votes[0]!.owner,
    ...tokenAndTime(votes, quorum, isShared),
    ...(isShared ? { shared: true } : {}),
    ...waitersIn(answers),
  }))
}

function votesFor(
  answers: readonly NodeLease[],
  holdersOf: (answer: NodeLease) => readonly NodeReader[],
): Map<string, LeaseVote[]> {
  const votes = new Map<string, LeaseVote[]>()
  for (const answer of answers) {
    for (const holder of holdersOf(answer)) {
      const vote = { ...holder, fence: answer.fence, nowUs: answer.nowUs }
      votes.set(holder.owner, [...(votes.get(holder.owner) ?? []), vote])
    }
  }
  return votes
}

function most(votes: ReadonlyMap<string, LeaseVote[]>): number {
  return Math.max(0, ...[...votes.values()].map((all) => all.length))
}

function tokenAndTime(
  votes: readonly LeaseVote[],
  quorum: number,
  isShared: boolean,
): Pick<LeaseInfo, 'token' | 'remainingMs' | 'heldMs'> {
  const times = votes.map(({ remainingMs }) => remainingMs ?? Infinity).sort((a, b) => b - a)
  const leftMs = times[quorum - 1] ?? times.at(-1)!
  const remainingMs = leftMs === Infinity ? undefined : leftMs
  // The counter is ours. A lock of other software has not moved it.
  if (!isOurs(votes[0]!.owner)) return { token: 0n, remainingMs }
  const fences = votes.map(({ fence }) => fence).sort((a, b) => a - b)
  // The number that a quorum shares is the token; a node that was ahead may show more.
  const token = fences.find((fence) => fences.filter((other) => other === fence).length >= quorum) ?? fences[0]!
  // Readers share the number of the first of them.
  return { token: BigInt(token), remainingMs, ...(isShared ? {} : heldSince(token, votes)) }
}

/**
 * A token is the time of its grant in µs, as the nodes' clocks had it to within two seconds, unless the counter was ahead of
 * them. While it is, nothing can be said.
 */
function heldSince(token: number, votes: readonly LeaseVote[]): { heldMs?: number } {
  const clocks = votes.map(({ nowUs }) => nowUs).sort((a, b) => a - b)
  const heldMs = Math.floor((clocks[clocks.length >> 1]! - token) / 1000)
  return heldMs >= 0 ? { heldMs } : {}
}

/** Nobody holds it, but it is offered to the first in line: on a quorum of nodes, as far as it has not claimed them yet. */
function offered(resource: string, answers: readonly NodeLease[], size: number): LeaseInfo[] {
  for (const heir of new Set(answers.map((answer) => answer.heir).filter((heir) => heir !== undefined))) {
    const votes = answers.filter((answer) => answer.heir === heir || answer.owner === heir)
    if (votes.length < quorumOf(size)) continue
    const remainingMs = Math.max(...votes.map((vote) => vote.remainingMs ?? 0))
    return [{ resource, owner: heir, token: 0n, remainingMs, offered: true, ...waitersIn(answers) }]
  }
  return []
}

function waitersIn(answers: readonly NodeLease[]): Pick<LeaseInfo, 'waiters' | 'line'> {
  const line = lineOf(answers)
  return { waiters: line.length, ...(line.length > 0 ? { line } : {}) }
}

/** All who are in line on any node: a node may have missed one who came while it was away. */
function lineOf(answers: readonly NodeLease[]): InLine[] {
  const all = new Map(answers.flatMap(({ line }) => line.map((one) => [one.owner, one] as const)))
  return [...all.values()].sort((a, b) => a.since! - b.since!)
}
