import type { Deadlines } from '../../deadlines.ts'
import type { Extension, LeaseRef } from '../../engine.ts'
import type { NodeFailure } from '../../errors.ts'
import { ask } from './ask.ts'
import { slotOf } from './slot.ts'
import type { RedisNode } from './node.ts'
import type { OwnerRequests, OpenRequests } from './cleanup.ts'
import type { Step } from './steps.ts'
import { quorumOf } from './votes.ts'

interface ExtendPlan {
  readonly deadlines: Deadlines
  readonly timeoutMs: number
  readonly open: OpenRequests
  failure(failures: readonly NodeFailure[], lease: LeaseRef): Error
  repair(index: number, lease: LeaseRef): void
}

/**
 * Renews leases on all nodes. A lease is held only if a quorum says so now; it is lost as soon as the answers make that
 * impossible; otherwise it is unknown. Where a node has lost the key of a lease that is held, the key is put back. That node
 * does not count until a quorum of the others has proved an extension to which it said yes, too: in between a rival may have
 * held the lock there.
 */
export async function extendOnQuorum(
  nodes: readonly RedisNode[],
  leases: readonly LeaseRef[],
  plan: ExtendPlan,
): Promise<readonly Extension[]> {
  const tallies = leases.map((lease) => new Tally(lease, nodes.length, plan))
  const failures: NodeFailure[] = []
  // Encoded once for all nodes.
  const batches = batchesOf(nodes, leases)
  let left = nodes.length
  const settle = (index: number, yes: readonly boolean[] | undefined): void => {
    for (const [i, tally] of tallies.entries()) tally.count(index, yes?.[i])
    if (--left === 0) for (const tally of tallies) tally.finish()
  }
  await ask(nodes, {
    deadlines: plan.deadlines,
    timeoutMs: plan.timeoutMs,
    send: async (node, index) => {
      try {
        const yes = await extendOnNode(node, batches)
        settle(index, yes)
      } catch (error) {
        settle(index, undefined)
        throw error
      }
    },
    heard: (index, answer) => {
      if (answer.kind === 'failed') failures.push({ node: nodes[index]!.label, cause: answer.cause })
      return tallies.every(({ verdict }) => verdict !== undefined)
    },
  })
  return tallies.map(({ verdict, lease }) => verdict ?? { kind: 'unknown', cause: plan.failure(failures, lease) })
}

/** Leases that one command renews, by their places in the list. */
interface Batch {
  readonly places: readonly number[]
  readonly leases: readonly LeaseRef[]
  readonly step: Step<readonly boolean[]>
}

/**
 * How many resources one call renews: a server serves nobody else until the last one. One takes about 2 µs, and a shared one, which has more
 * keys, about 11 µs.
 */
const MOST_RESOURCES = { exclusive: 256, shared: 64 }

/** One for all, and one for those that are shared; on a Cluster one for each hash slot; and more where they have many resources. */
function batchesOf(nodes: readonly RedisNode[], leases: readonly LeaseRef[]): Batch[] {
  const node = nodes[0]!
  const isCluster = nodes.some(({ client }) => client.cluster)
  const groups: number[][] = []
  const last = new Map<string, { readonly places: number[]; resources: number }>()
  for (const [place, { resources, shared = false }] of leases.entries()) {
    const name = `${shared} ${isCluster ? slotOf(node.keys(resources).pairs[0]!) : ''}`
    const most = shared ? MOST_RESOURCES.shared : MOST_RESOURCES.exclusive
    let group = last.get(name)
    if (group === undefined || group.resources + resources.length > most) {
      group = { places: [], resources: 0 }
      last.set(name, group)
      groups.push(group.places)
    }
    group.places.push(place)
    group.resources += resources.length
  }
  return groups.map((places) => {
    const some = places.map((place) => leases[place]!)
    return { places, leases: some, step: node.extendStep(some) }
  })
}

async function extendOnNode(node: RedisNode, batches: readonly Batch[]): Promise<readonly boolean[]> {
  const answers: boolean[] = []
  await Promise.all(
    batches.map(async ({ places, leases, step }) => {
      const some = await node.extend(leases, step)
      for (const [index, place] of places.entries()) answers[place] = some[index]!
    }),
  )
  return answers
}

/** The answers for one lease. */
class Tally {
  readonly lease: LeaseRef
  verdict: Extension | undefined
  readonly #plan: ExtendPlan
  readonly #quorum: number
  readonly #size: number
  readonly #requests: OwnerRequests | undefined
  #proofs = 0
  #denials = 0
  readonly #saidNo: number[] = []
  /** Repaired nodes that said yes. */
  readonly #recovered: number[] = []

  constructor(lease: LeaseRef, size: number, plan: ExtendPlan) {
    this.lease = lease
    this.#plan = plan
    this.#size = size
    this.#quorum = quorumOf(size)
    if (size > 1) this.#requests = plan.open.begin(lease.owner)
  }

  count(index: number, yes: boolean | undefined): void {
    if (yes === undefined) return
    if (!yes) this.#saidNo.push(index)
    const repaired = this.#requests?.hasRepaired === true && this.#requests.repaired.has(index)
    if (yes && repaired) this.#recovered.push(index)
    if (yes && !repaired) this.#proofs++
    else this.#denials++
    if (this.verdict === undefined) {
      if (this.#proofs >= this.#quorum) this.verdict = { kind: 'held' }
      else if (this.#denials > this.#size - this.#quorum) this.verdict = { kind: 'lost' }
    }
  }

  /** All nodes have answered or failed. */
  finish(): void {
    const requests = this.#requests
    if (requests === undefined) return
    if (this.verdict?.kind === 'held' && !requests.over) {
      for (const index of this.#recovered) if (!requests.repairing.has(index)) requests.repaired.delete(index)
      for (const index of this.#saidNo) if (!requests.repairing.has(index)) this.#plan.repair(index, this.lease)
    }
    // A lease that is lost is not necessarily released.
    if (this.verdict?.kind === 'lost') this.#plan.open.end(this.lease.owner)
    this.#plan.open.done(this.lease.owner, requests, this.lease.ttlMs)
  }
}
