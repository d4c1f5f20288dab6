import type { Clock } from '../../clock.ts'
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
import { Elections } from './elections.ts'
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
import { QuorumRelease } from './release.ts'
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
  readonly #elections: Elections
  /** Undefined where every node votes at all times. */
  readonly #electorate: Electorate | undefined
  /** Where there are several nodes, and no electorate looks at them. */
  readonly #identities: Identities | undefined
  /** Where there is one node only. */
  readonly #single: SingleNode | undefined
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
    this.#elections = new Elections({
      nodes,
      clock: options.clock,
      deadlines: this.#deadlines,
      open: this.#open,
      cleanup: this.#cleanup,
      electorate: this.#electorate,
      identities: this.#identities,
      timeoutMs: (ttlMs) => options.timeoutMs(ttlMs),
      isObserved: () => this.#observed,
      failure: (failures, resources) => this.#failure(failures, resources),
    })
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
      const { resources, shared } = request
      assertNotOwnKeys(this.#options.prefix, resources)
      const keys = this.#keys(resources, shared)
      if (this.#single === undefined) return this.#elections.acquire(keys, request, resolve, reject)
      this.#single.acquire(keys, request, this.#elections.proposal(), resolve, reject)
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
      if (this.#single === undefined) return this.#elections.handOver(keys, lease, next, isVote, resolve, reject)
      this.#single.handOver(keys, lease, next, this.#elections.proposal(), isVote, resolve, reject)
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
    const barred = async (): Promise<readonly NodeFailure[]> => (await this.#electorate?.barred(timeoutMs)) ?? []
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
      claim: (request, keys, owner, left) => this.#elections.claim(request, keys, owner, left),
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

  #inTime<T>(work: Promise<T>): Promise<T> {
    return inTime(work, this.#deadlines, this.#options.timeoutMs(NO_TTL_MS))
  }
}

/** Commands that belong to no lease have the time of a lease of 10 s. */
const NO_TTL_MS = 10_000
