import type { Deadlines } from '../../deadlines.ts'
import type { LeaseInfo } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { ask, inTime } from './ask.ts'
import { FENCE_PATTERN, resourceOfFence } from './keys.ts'
import type { Inspected, RedisNode } from './node.ts'
import { quorumOf } from './votes.ts'

interface InspectPlan {
  readonly prefix: string
  readonly deadlines: Deadlines
  readonly timeoutMs: number
  readonly resource: string | undefined
}

/** How many keys a node looks through at a time: a scan must not hold up the locks, and this takes well below a millisecond. */
const SCAN_COUNT = 1000
/** How many leases a node is asked for at a time, for the same reason. Several questions may be under way. */
const LEASES_A_TIME = 250

/** Leases that a quorum of nodes agrees on. Every lease has a fence key, so those are what is looked for. */
export async function* inspectQuorum(nodes: readonly RedisNode[], plan: InspectPlan): AsyncIterable<LeaseInfo> {
  if (plan.resource !== undefined) {
    yield* await leasesOf(nodes, [plan.resource], plan)
    return
  }
  // A node may have missed a grant that a quorum holds, so N - q + 1 of them must be looked through to see all.
  const seen = new Set<string>()
  let looked = 0
  for (const node of nodes) {
    if (looked > nodes.length - quorumOf(nodes.length)) return
    try {
      for await (const page of fenceKeys(node, plan)) {
        const fresh = page
          .map((key) => resourceOfFence(plan.prefix, key))
          .filter((resource) => resource !== undefined)
          .filter((resource) => !seen.has(resource))
        for (const resource of fresh) seen.add(resource)
        const names = [...new Set(fresh)].sort()
        const parts = Array.from({ length: Math.ceil(names.length / LEASES_A_TIME) }, (_, index) =>
          leasesOf(nodes, names.slice(index * LEASES_A_TIME, (index + 1) * LEASES_A_TIME), plan),
        )
        yield* (await Promise.all(parts)).flat()
      }
      looked++
    } catch (error) {
      if (node === nodes.at(-1) && looked <= nodes.length - quorumOf(nodes.length)) {
        throw new EngineError(`${node.label}: ${String(error)}`, [], { cause: error })
      }
    }
  }
}

async function* fenceKeys(node: RedisNode, { deadlines, timeoutMs }: InspectPlan): AsyncIterable<string[]> {
  for (const master of await inTime(node.client.masters(), deadlines, timeoutMs)) {
    let cursor = '0'
    do {
      const command = ['SCAN', cursor, 'MATCH', FENCE_PATTERN, 'COUNT', String(SCAN_COUNT)]
      const [next, keys] = (await inTime(master.run(command), deadlines, timeoutMs)) as [string, string[]]
      cursor = next
      if (keys.length > 0) yield keys
    } while (cursor !== '0')
  }
}

async function leasesOf(
  nodes: readonly RedisNode[],
  resources: readonly string[],
  plan: InspectPlan,
): Promise<LeaseInfo[]> {
  const answers: (readonly Inspected[])[] = []
  const causes: Error[] = []
  await ask(nodes, {
    deadlines: plan.deadlines,
    timeoutMs: plan.timeoutMs,
    send: (node) => inspectNode(node, resources),
    heard: (_index, answer) => {
      if (answer.kind === 'answer') answers.push(answer.value)
      else causes.push(answer.cause)
      return false
    },
  })
  const quorum = quorumOf(nodes.length)
  if (answers.length < quorum) {
    throw new EngineError(`could not ask a quorum of nodes: ${causes[0]?.message}`, resources, { cause: causes[0] })
  }
  return resources.flatMap(
    (resource, index) =>
      agreed(
        resource,
        answers.map((answer) => answer[index]!),
        quorum,
      ) ?? [],
  )
}

async function inspectNode(node: RedisNode, resources: readonly string[]): Promise<readonly Inspected[]> {
  if (!node.client.cluster || resources.length === 1) return node.inspect(node.keys(resources))
  // On a Cluster each may be in a slot of its own.
  return (await Promise.all(resources.map((resource) => node.inspect(node.keys([resource]))))).flat()
}

/** The owner that a quorum of nodes names, the least time left among those that hold the lease up, its highest number. */
function agreed(resource: string, answers: readonly Inspected[], quorum: number): LeaseInfo | undefined {
  const owners = new Set(answers.map(({ owner }) => owner).filter((owner) => owner !== ''))
  for (const owner of owners) {
    const votes = answers.filter((answer) => answer.owner === owner)
    if (votes.length < quorum) continue
    const times = votes.map(({ remainingMs }) => remainingMs ?? Infinity).sort((a, b) => b - a)
    const remainingMs = times[quorum - 1]!
    const fences = votes.map(({ fence }) => fence).sort((a, b) => a - b)
    // The number that a quorum shares is the token; a node that was ahead may show more.
    const token = fences.find((fence) => fences.filter((other) => other === fence).length >= quorum) ?? fences[0]!
    return { resource, owner, token: BigInt(token), remainingMs: remainingMs === Infinity ? undefined : remainingMs }
  }
  return undefined
}
