import { elapsedMs, instant, type Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  Refusal,
  Release,
  Watch,
} from '../../engine.ts'
import { asError, type EngineError, type NodeFailure } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { inTime } from '../shared/in-time.ts'
import { ask } from './ask.ts'
import { OpenRequests, QuorumCleanup } from './cleanup.ts'
import { checkRedis } from './doctor/index.ts'
import { Election } from './election.ts'
import { Electorate, type TimeLimits } from './voters/electorate.ts'
import { extendOnQuorum } from './extend.ts'
import { failureOf, silentNodes } from './errors.ts'
import { initNodes } from './init.ts'
import { inspectQuorum } from './inspect.ts'
import { assertNotOwnKeys, assertOneSlot, type KeySet } from './keys.ts'
import { SingleNode } from './single-node.ts'
import type { RedisNode } from './node.ts'
import { probeRedis } from './probe.ts'
import { holderOf, refusalOf } from './refusal.ts'
import { withNextRound } from '../shared/next-round.ts'
import { asksInOrder } from './split-votes.ts'
import type { NodeGrant, NodeRefusal } from './steps.ts'
import { quorumOf } from './votes.ts'
import { RedisWakeups } from './wakeups.ts'

export interface RedisEngineOptions {
  readonly name: 'redis' | 'redlock'
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  readonly restart: 'auto' | 'strict' | 'trust'
  readonly sitOutMs: number
  /** How many replicas acknowledge a grant. */
  readonly replicas: number
  /** How long a node may take to answer about a lease of this ttl. */
  timeoutMs(ttlMs: number): number
}

/** N independent Redis masters; one is the case N = 1 of the same protocol. */
export class RedisEngine implements Engine {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  /** Only where there are several nodes: about one node the core knows everything itself. */
  readonly observe?: NonNullable<Engine['observe']>
  readonly #nodes: readonly RedisNode[]
  readonly #options: RedisEngineOptions
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #quorum: number
  readonly #open: OpenRequests
  readonly #cleanup: QuorumCleanup
  readonly #wakeups: RedisWakeups
  /** Undefined where every node votes at all times. */
  readonly #electorate: Electorate | undefined
  /** Where there is one node only. */
  readonly #single: SingleNode | undefined
  /** The highest number seen on any node, for the next proposal. */
  #highestFence = 0

  constructor(nodes: readonly RedisNode[], options: RedisEngineOptions) {
    this.name = options.name
    this.identity = `${options.name}:${options.prefix}`
    this.guarantees = options.guarantees
    this.limits = options.limits
    this.#nodes = nodes
    this.#options = options
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.#open = new OpenRequests(this.#deadlines)
    this.#cleanup = new QuorumCleanup(nodes, this.#deadlines, this.#options.timeoutMs(NO_TTL_MS))
    this.#quorum = quorumOf(nodes.length)
    this.#wakeups = new RedisWakeups(nodes, options.clock, options.random)
    this.#electorate = this.#electorateOf(nodes)
    this.#single = nodes.length === 1 ? this.#singleNode(nodes[0]!) : undefined
    // One limit for all ttls: the longest that anyone waits for a node.
    if (nodes.length > 1) {
      this.observe = (tell) => nodes.forEach((node) => node.observe(options.timeoutMs(Infinity), tell))
    }
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    assertNotOwnKeys(this.#options.prefix, resources)
    const keys = this.#keys(resources)
    const proposal = this.#proposal()
    if (this.#single !== undefined) return this.#single.acquire(keys, request, proposal)
    const began = instant(this.#clock)
    const { token, election } = await this.#elect(keys, owner, ttlMs, asksInOrder(request), (node, isWanted) =>
      node.acquire(keys, owner, ttlMs, proposal, isWanted),
    )
    if (token !== undefined) return { kind: 'granted', token: BigInt(token) }
    if (election.failures.length > this.#nodes.length - this.#quorum) throw this.#failure(election.failures, resources)
    return withNextRound(refusalOf(election, this.#nodes.length), request, elapsedMs(this.#clock, began))
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const keys = this.#keys(lease.resources)
    const proposal = this.#proposal()
    if (this.#single !== undefined) return this.#single.handOver(keys, lease, next, proposal)
    const requests = this.#open.end(lease.owner)
    const { token, election } = await this.#elect(
      keys,
      next.owner,
      next.ttlMs,
      false,
      (node) => node.handOver(keys, lease.owner, next, proposal),
      (index) => this.#cleanup.undo(index, keys, lease.owner),
    )
    // Where the hand-over may not have arrived, or all of it failed, the old owner's keys would stay for their ttl.
    for (const index of token === undefined ? this.#nodes.keys() : election.doubtful()) {
      this.#cleanup.undo(index, keys, lease.owner)
    }
    this.#cleanup.ended(requests, this.#keys(lease.resources), lease.owner)
    if (token !== undefined) return { kind: 'granted', token: BigInt(token) }
    if (election.refusals.length > this.#nodes.length - this.#quorum) return { kind: 'refused', reason: 'held' }
    // A quorum gave the lease to the next owner, but not with one number, and it is withdrawn from all of them.
    if (election.voters() >= this.#quorum) return { kind: 'refused', reason: 'split' }
    throw this.#failure(election.failures, lease.resources)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const extensions = await extendOnQuorum(this.#nodes, leases, {
      deadlines: this.#deadlines,
      timeoutMs: this.#options.timeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs))),
      open: this.#open,
      failure: (failures, lease) => this.#failure(failures, lease.resources),
      repair: (index, lease) => this.#repair(index, lease),
    })
    if (extensions.some(({ kind }) => kind === 'held')) this.#electorate?.used()
    return extensions
  }

  /** An extension that nothing follows: what a slow node grants after it would stay for the whole first ttl. */
  async leave(lease: LeaseRef): Promise<Extension> {
    const requests = this.#open.get(lease.owner)
    if (requests !== undefined) Object.assign(requests, { over: true, left: lease })
    const [answer] = await this.extend([lease])
    this.#cleanup.ended(requests, this.#keys(lease.resources), lease.owner)
    return answer!
  }

  async release(lease: LeaseRef): Promise<Release> {
    const keys = this.#keys(lease.resources)
    this.#wakeups.releasing(lease.owner)
    if (this.#single !== undefined) {
      return this.#single.release(keys, lease, () => this.#wakeups.ownSubscriptions(0, keys.channels))
    }
    const requests = this.#open.end(lease.owner)
    const failures: NodeFailure[] = []
    let ours = 0
    let notOurs = 0
    let awaited = 0
    const released = (index: number, wasOurs: boolean): void =>
      this.#cleanup.released(requests, index, wasOurs, keys, lease.owner)
    await ask(this.#nodes, {
      deadlines: this.#deadlines,
      timeoutMs: this.#options.timeoutMs(lease.ttlMs),
      send: (node) => node.release(keys, lease.owner, lease.token),
      late: (index, answer) => released(index, answer.kind === 'answer' && answer.value.ours),
      heard: (index, answer) => {
        const node = this.#nodes[index]!
        released(index, answer.kind === 'answer' && answer.value.ours)
        if (answer.kind === 'failed') failures.push({ node: node.label, cause: answer.cause })
        else {
          if (answer.value.ours) ours++
          else notOurs++
          awaited = Math.max(awaited, answer.value.listeners - this.#wakeups.ownSubscriptions(index, keys.channels))
        }
        return ours >= this.#quorum || notOurs > this.#nodes.length - this.#quorum
      },
    })
    if (ours >= this.#quorum) return { ours: true, awaited }
    if (notOurs > this.#nodes.length - this.#quorum) return { ours: false, awaited }
    throw this.#failure(failures, lease.resources)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#wakeups.watch(this.#keys(resources).channels, freed)
  }

  unanswered({ resources, ttlMs }: Pick<LeaseRequest, 'resources' | 'ttlMs'>, waitMs: number): EngineError {
    return this.#failure(silentNodes(this.#nodes, waitMs, this.#options.timeoutMs(ttlMs)), resources)
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const [{ prefix }, timeoutMs] = [this.#options, this.#options.timeoutMs(NO_TTL_MS)]
    const barred = async (): Promise<readonly NodeFailure[]> => (await this.#electorate?.barred()) ?? []
    return inspectQuorum(this.#nodes, { prefix, deadlines: this.#deadlines, timeoutMs, resource, barred })
  }

  async check(ttlMs: number): Promise<readonly Finding[]> {
    const clients = this.#nodes.map(({ client }) => client)
    const standings = (await this.#electorate?.standings()) ?? []
    return checkRedis({ ...this.#options, clients, ttlMs, driftMs: this.limits.driftMs(ttlMs), standings })
  }

  async probe(): Promise<readonly NodeState[]> {
    const [states, standings] = await Promise.all([
      probeRedis(this.#nodes, this.#clock),
      this.#electorate?.standings() ?? [],
    ])
    return states.map((state) => {
      const { standing, look } = standings.find(({ label }) => label === state.node) ?? {}
      if (standing?.kind !== 'out') return state
      return { ...state, sitsOutMs: standing.remainingMs, sitsOutLater: look?.since === undefined }
    })
  }

  init(): Promise<readonly string[]> {
    return initNodes(this.#nodes, this.#electorate, (work) => this.#inTime(work))
  }

  async close(): Promise<void> {
    await this.#wakeups.close()
    // The drivers bound the requests under way; closing waits no longer for them than a node may take to answer.
    await this.#inTime(Promise.all(this.#nodes.map((node) => node.idle()))).catch(() => undefined)
    this.#deadlines.close()
    for (const node of this.#nodes) node.close()
  }

  async #elect(
    keys: KeySet,
    owner: string,
    ttlMs: number,
    inOrder: boolean,
    acquire: (node: RedisNode, isWanted: () => boolean) => Promise<NodeGrant | NodeRefusal>,
    lateFailure?: (index: number) => void,
  ): Promise<Elected> {
    let quiet = false
    const requests = this.#nodes.length > 1 ? this.#open.begin(owner) : undefined
    const election = new Election({
      nodes: this.#nodes,
      deadlines: this.#deadlines,
      timeoutMs: this.#options.timeoutMs(ttlMs),
      inOrder,
      acquire,
      confirm: (node, token) => node.confirm(keys, owner, token, ttlMs),
      late: (index, failed) => {
        if (election.isLost) this.#cleanup.undo(index, keys, owner, quiet)
        else if (requests?.over === true) this.#cleanup.lateGrant(requests, index, keys, owner)
        if (failed) lateFailure?.(index)
      },
      settled: () => {
        if (requests !== undefined) this.#open.done(owner, requests, ttlMs)
      },
    })
    const token = await election.run()
    this.#highestFence = Math.max(this.#highestFence, election.highestFence)
    if (election.granted().length + election.refusals.length >= this.#quorum) this.#electorate?.used()
    // Where a holder is certain, or too few nodes answer, our release of the other nodes wakes nobody. A waiter that it woke,
    // ourselves among them, would be granted the same nodes, release them, and wake the others, at the speed of the network,
    // for as long as that lasts.
    quiet =
      holderOf(election, this.#quorum) !== undefined || election.failures.length > this.#nodes.length - this.#quorum
    if (token === undefined) await this.#cleanup.withdraw(election, keys, owner, quiet)
    return { token, election }
  }

  /** Puts a lost key back on a node, so that the node refuses rivals. It proves nothing about the lease. */
  #repair(index: number, lease: LeaseRef): void {
    const requests = this.#open.begin(lease.owner)
    requests.repairing.add(index)
    requests.repaired.add(index)
    const keys = this.#keys(lease.resources)
    const node = this.#nodes[index]!
    node
      .acquire(keys, lease.owner, lease.ttlMs, Number(lease.token))
      // NodeRefusal, sitting out or away: the next extension finds the key missing again and we try again.
      .catch(() => undefined)
      .finally(() => {
        requests.repairing.delete(index)
        if (requests.over) this.#cleanup.lateGrant(requests, index, keys, lease.owner)
        this.#open.done(lease.owner, requests, lease.ttlMs)
      })
  }

  #electorateOf(nodes: readonly RedisNode[]): Electorate | undefined {
    const { restart, sitOutMs, clock } = this.#options
    const voters = nodes.flatMap(({ label, admission }) => (admission === undefined ? [] : [{ label, admission }]))
    if (restart === 'trust' || voters.length === 0) return undefined
    const limits: TimeLimits = {
      timeoutMs: (ttlMs) => this.#options.timeoutMs(ttlMs),
      inTime: (work, timeoutMs) => inTime(work, this.#deadlines, timeoutMs),
    }
    return new Electorate(voters, { restart, sitOutMs, clock }, limits)
  }

  #singleNode(node: RedisNode): SingleNode {
    return new SingleNode(node, {
      deadlines: this.#deadlines,
      timeoutMs: (ttlMs) => this.#options.timeoutMs(ttlMs),
      failure: (cause, resources) => this.#failure([{ node: node.label, cause: asError(cause) }], resources),
    })
  }

  #failure(failures: readonly NodeFailure[], resources: readonly string[]): EngineError {
    return failureOf(failures, resources, { quorum: this.#quorum, size: this.#nodes.length })
  }

  #keys(resources: readonly string[]): KeySet {
    const keys = this.#nodes[0]!.keys(resources)
    if (resources.length > 1 && this.#nodes.some(({ client }) => client.cluster)) assertOneSlot(keys.pairs, resources)
    return keys
  }

  /** Our wall clock in µs, or more than the highest number of any node: then all nodes come to the same number, even if their clocks differ. */
  #proposal(): number {
    return Math.max(Math.round(this.#clock.wallMs() * 1000), this.#highestFence + 1)
  }

  /** A command that belongs to no lease. */
  #inTime<T>(work: Promise<T>): Promise<T> {
    return inTime(work, this.#deadlines, this.#options.timeoutMs(NO_TTL_MS))
  }
}

/** Commands that belong to no lease have the time of a lease of 10 s. */
const NO_TTL_MS = 10_000

interface Elected {
  readonly token: number | undefined
  readonly election: Election
}
