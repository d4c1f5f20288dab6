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
  QueuedGrant,
  Refusal,
  Release,
  Watch,
} from '../../engine.ts'
import { asError, type EngineError, type NodeFailure } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { inTime } from '../shared/in-time.ts'
import { OpenRequests, QuorumCleanup } from './cleanup.ts'
import { checkRedis } from './doctor/index.ts'
import { Election, type ElectionEnd } from './election.ts'
import { Electorate, type TimeLimits } from './voters/electorate.ts'
import { Identities } from './voters/same-server.ts'
import { extendOnQuorum } from './extend.ts'
import { failureOf, silentNodes } from './errors.ts'
import { initNodes } from './init.ts'
import { inspectQuorum } from './inspect.ts'
import { assertNotOwnKeys, assertOneSlot, type KeySet } from './keys.ts'
import { SingleNode } from './single-node.ts'
import type { RedisNode } from './node.ts'
import { probeRedis } from './probe.ts'
import { RedisQueue } from './queue.ts'
import { grantOf, heldBy, refusalOf } from './refusal.ts'
import { withNextRound } from '../shared/next-round.ts'
import { asksInOrder } from './split-votes.ts'
import { QuorumRelease } from './release.ts'
import type { NodeGrant, NodeRefusal, Step } from './steps.ts'
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
  readonly #queue: RedisQueue
  /** Undefined where every node votes at all times. */
  readonly #electorate: Electorate | undefined
  /** Where there are several nodes, and no electorate looks at them. */
  readonly #identities: Identities | undefined
  /** Where there is one node only. */
  readonly #single: SingleNode | undefined
  /** The highest number seen on any node, for the next proposal. */
  #highestFence = 0
  #observed = false

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
    this.#queue = this.#queueOf(nodes)
    this.#electorate = this.#electorateOf(nodes)
    if (nodes.length > 1 && this.#electorate === undefined)
      this.#identities = new Identities(nodes, options.clock, (work) => this.#inTime(work))
    this.#single = nodes.length === 1 ? this.#singleNode(nodes[0]!) : undefined
    // One limit for all ttls: the longest that anyone waits for a node.
    if (nodes.length > 1) {
      this.observe = (tell) => {
        this.#observed = true
        for (const node of nodes) node.observe(options.timeoutMs(Infinity), tell)
      }
    }
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const vetting = this.#identities?.vet(request.ttlMs)
    return vetting?.then((twins) => this.#acquire(request, twins)) ?? this.#acquire(request)
  }

  #acquire(request: LeaseRequest, twins: readonly NodeFailure[] = []): Promise<Grant | Refusal> {
    if (twins.length > 0) return Promise.reject(this.#failure(twins, request.resources))
    return new Promise((resolve, reject) => {
      const { resources, owner, ttlMs, shared } = request
      assertNotOwnKeys(this.#options.prefix, resources)
      const keys = this.#keys(resources, shared)
      const proposal = this.#proposal()
      if (this.#single !== undefined) return this.#single.acquire(keys, request, proposal, resolve, reject)
      const began = instant(this.#clock)
      const step = this.#nodes[0]!.acquireStep(keys, owner, ttlMs, proposal)
      this.#elect(keys, owner, ttlMs, step, asksInOrder(request), {
        decided: (token, election) => {
          const { length } = this.#nodes
          if (token !== undefined) resolve(grantOf(token, election, this.#observed))
          else if (election.failures.length > length - this.#quorum) reject(this.#failure(election.failures, resources))
          else resolve(withNextRound(refusalOf(election, length, shared), request, elapsedMs(this.#clock, began)))
        },
      })
    })
  }

  /** Nodes that sit out take part: the lease is valid by the clock of this process, and it is handed over once. */
  handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    return this.#handOver(lease, next, false)
  }

  /** Nodes that sit out do not: the ticket may have been used before, and they may have forgotten that. */
  async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    assertNotOwnKeys(this.#options.prefix, lease.resources)
    return this.#handOver(lease, next, true)
  }

  #handOver(lease: LeaseRef, next: LeaseRequest, isVote: boolean): Promise<Grant | Refusal> {
    return new Promise((resolve, reject) => {
      const keys = this.#keys(lease.resources)
      const proposal = this.#proposal()
      if (this.#single !== undefined) return this.#single.handOver(keys, lease, next, proposal, resolve, reject)
      const requests = this.#open.end(lease.owner)
      const step = this.#nodes[0]!.handOverStep(keys, lease, next, proposal, isVote)
      // An adoption that is refused leaves the lease to its holder.
      let isLeft = false
      const undo = (index: number): void => void (isLeft || this.#cleanup.undo(index, keys, lease.owner))
      this.#elect(keys, next.owner, next.ttlMs, step, false, {
        lateFailure: undo,
        decided: (token, election) => {
          const isRefused = election.refusals.length > this.#nodes.length - this.#quorum
          isLeft = isVote && token === undefined && isRefused
          // Where the hand-over may not have arrived, or all of it failed, the old owner's keys would stay for their ttl.
          for (const index of token === undefined ? this.#nodes.keys() : election.doubtful()) undo(index)
          this.#cleanup.ended(requests, keys, lease.owner)
          if (token !== undefined) resolve(grantOf(token, election, this.#observed))
          else if (isRefused) resolve({ kind: 'refused', reason: 'held' })
          // A quorum gave the lease to the next owner, but not with one number, and it is withdrawn from all of them.
          else if (election.voters() >= this.#quorum) resolve({ kind: 'refused', reason: 'split' })
          else reject(this.#failure(election.failures, lease.resources))
        },
      })
    })
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
    this.#cleanup.ended(requests, this.#keys(lease.resources, lease.shared), lease.owner)
    return answer!
  }

  release(lease: LeaseRef): Promise<Release> {
    const keys = this.#keys(lease.resources, lease.shared)
    const passOn = this.#queue.releasing(lease.resources)
    this.#wakeups.releasing(lease.owner)
    if (this.#single !== undefined) {
      return this.#single.release(keys, lease, passOn, () => this.#wakeups.ownSubscriptions(0, keys.channels))
    }
    const requests = this.#open.end(lease.owner)
    return new QuorumRelease(this.#nodes, {
      deadlines: this.#deadlines,
      timeoutMs: this.#options.timeoutMs(lease.ttlMs),
      step: this.#nodes[0]!.releaseStep(keys, lease.owner, lease.token, false, passOn),
      released: (index, ours) => this.#cleanup.released(requests, index, ours, keys, lease.owner),
      ownListeners: (index) => this.#wakeups.ownSubscriptions(index, keys.channels),
      failure: (failures) => this.#failure(failures, lease.resources),
    }).run()
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#wakeups.watch(this.#keys(resources).channels, freed)
  }

  enqueue(request: LeaseRequest, signal: AbortSignal, newOwner?: () => string): Promise<QueuedGrant> {
    return this.#queue.enqueue(request, signal, newOwner)
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

  #elect(
    keys: KeySet,
    owner: string,
    ttlMs: number,
    step: Step<NodeGrant | NodeRefusal>,
    inOrder: boolean,
    end: ElectionEnd,
  ): void {
    let quiet = false
    const began = instant(this.#clock)
    const requests = this.#open.begin(owner)
    const election = new Election({
      nodes: this.#nodes,
      deadlines: this.#deadlines,
      timeoutMs: this.#options.timeoutMs(ttlMs),
      inOrder,
      acquire: (index, to) => this.#nodes[index]!.send(step, to, index),
      confirm: (index, to, token) => {
        const node = this.#nodes[index]!
        node.send(node.confirmStep(keys, owner, token, ttlMs), to, index)
      },
      late: (index, failed) => {
        if (election.isLost && end.left !== undefined) end.left(index)
        else if (election.isLost) this.#cleanup.undo(index, keys, owner, quiet)
        else if (requests.over) this.#cleanup.lateGrant(requests, index, keys, owner)
        if (failed) end.lateFailure?.(index)
      },
      lateRefusal: (index) => {
        if (!election.isLost) end.refusal?.(index)
      },
      settled: () => this.#open.done(owner, requests, ttlMs),
      isOver: () => requests.over || elapsedMs(this.#clock, began) >= ttlMs,
    })
    election.run((token) => {
      this.#highestFence = Math.max(this.#highestFence, election.highestFence)
      if (election.heard >= this.#quorum) this.#electorate?.used()
      if (token !== undefined || end.left !== undefined) return end.decided(token, election)
      // Where a holder is certain, or too few nodes answer, our release of the other nodes wakes nobody. A waiter that it
      // woke, ourselves among them, would be granted the same nodes, release them, and wake the others, at the speed of the
      // network, for as long as that lasts.
      quiet =
        heldBy(election, this.#quorum) !== undefined || election.failures.length > this.#nodes.length - this.#quorum
      void this.#cleanup.withdraw(election, keys, owner, quiet).then(() => end.decided(undefined, election))
    })
  }

  /** Puts a lost key back on a node, so that the node refuses rivals. It proves nothing about the lease. */
  #repair(index: number, lease: LeaseRef): void {
    const requests = this.#open.begin(lease.owner)
    requests.repairing.add(index)
    requests.repaired.add(index)
    const keys = this.#keys(lease.resources, lease.shared)
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

  #queueOf(nodes: readonly RedisNode[]): RedisQueue {
    const { clock, random } = this.#options
    return new RedisQueue({
      nodes,
      clock,
      random,
      deadlines: this.#deadlines,
      wakeups: this.#wakeups,
      timeoutMs: (ttlMs) => this.#options.timeoutMs(ttlMs),
      keys: (resources, shared) => this.#keys(resources, shared),
      acquire: (request) => this.acquire(request),
      claim: ({ resources, ttlMs }, keys, owner, left) =>
        new Promise((resolve, reject) => {
          const step = nodes[0]!.claimStep(keys, owner, ttlMs, this.#proposal())
          // Where the claim was refused, the owner is still in line.
          const refusal = (index: number): void => this.#cleanup.undo(index, keys, owner)
          this.#elect(keys, owner, ttlMs, step, false, {
            left,
            refusal,
            decided: (token, election) => {
              const isFailure = token === undefined && election.failures.length > nodes.length - this.#quorum
              if (isFailure) return reject(this.#failure(election.failures, resources))
              if (token !== undefined) for (const index of election.refusing()) refusal(index)
              resolve(token === undefined ? undefined : grantOf(token, election, this.#observed))
            },
          })
        }),
      failure: (failures, resources) => this.#failure(failures, resources),
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

  #keys(resources: readonly string[], shared = false): KeySet {
    const keys = this.#nodes[0]!.keys(resources, shared)
    if (resources.length > 1 && this.#nodes.some(({ client }) => client.cluster)) assertOneSlot(keys.pairs, resources)
    return keys
  }

  /** Our wall clock in µs, or more than the highest number of any node: then all nodes come to the same number, even if their clocks differ. */
  #proposal(): number {
    return Math.max(Math.round(this.#clock.wallMs() * 1000), this.#highestFence + 1)
  }

  #inTime<T>(work: Promise<T>): Promise<T> {
    return inTime(work, this.#deadlines, this.#options.timeoutMs(NO_TTL_MS))
  }
}

/** Commands that belong to no lease have the time of a lease of 10 s. */
const NO_TTL_MS = 10_000
