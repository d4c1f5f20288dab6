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
  Refusal,
  Release,
  RoundTrip,
  Watch,
} from '../../engine.ts'
import type { EngineError, NodeFailure } from '../../errors.ts'
import { SittingOutError } from './admission.ts'
import { ask, inTime, type Answer } from './ask.ts'
import { checkRedis } from './doctor.ts'
import { Election } from './election.ts'
import { extendOnQuorum } from './extend.ts'
import { failureOf } from './failure.ts'
import { initNodes } from './init.ts'
import { inspectQuorum } from './inspect.ts'
import { assertOneSlot } from './keys.ts'
import { LoneNode } from './lone.ts'
import type { Granted, KeySet, RedisNode, Refused } from './node.ts'
import { probeRedis } from './probe.ts'
import { Returned } from './returned.ts'
import { Trails, type Trail } from './trails.ts'
import { quorumOf } from './votes.ts'
import { Wakeups } from './wakeups.ts'

export interface QuorumOptions {
  readonly name: 'redis' | 'redlock'
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly prefix: string
  readonly clock: Clock
  readonly restart: 'auto' | 'strict' | 'trust'
  /** Undefined: a tenth of the ttl. */
  readonly nodeTimeoutMs: number | undefined
  /** How many replicas acknowledge a grant, and how much longer a command may take because of that. */
  readonly replicas: number
  readonly replicaWaitMs: number
}

/** N independent Redis masters; one is the case N = 1 of the same protocol. */
export class QuorumEngine implements Engine {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly #nodes: readonly RedisNode[]
  readonly #options: QuorumOptions
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #quorum: number
  readonly #trails = new Trails()
  readonly #wakeups: Wakeups
  readonly #returned: Returned
  /** Where there is one node only. */
  readonly #lone: LoneNode | undefined
  /** The highest number seen on any node, for the next proposal. */
  #highestFence = 0

  constructor(nodes: readonly RedisNode[], options: QuorumOptions) {
    this.name = options.name
    this.identity = `${options.name}:${options.prefix}`
    this.guarantees = options.guarantees
    this.limits = options.limits
    this.#nodes = nodes
    this.#options = options
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.#quorum = quorumOf(nodes.length)
    this.#wakeups = new Wakeups(nodes, options.clock)
    this.#returned = new Returned(nodes, options, (work) => this.#inTime(work))
    this.#lone = nodes.length === 1 ? this.#loneNode(nodes[0]!) : undefined
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { owner, ttlMs } = request
    const keys = this.#keys(request.resources)
    const proposal = this.#proposal()
    if (this.#lone !== undefined) return this.#lone.acquire(keys, request, proposal)
    const { token, election } = await this.#elect(keys, owner, ttlMs, request.inOrder, (node) =>
      node.acquire(keys, owner, ttlMs, proposal),
    )
    const sitting = election.failedBy(SittingOutError)
    const spare = this.#nodes.length - this.#quorum
    if (sitting.length > 0 && election.refusals.length <= spare && election.failures.length > spare) {
      const maybeNew = election.refusals.length + election.granted().length === 0
      // To be tried again, with a new owner: late answers of this one may still be on their way to be undone.
      if (await this.#returned.letIn(sitting, maybeNew)) return { kind: 'refused', reason: 'split' }
    } else if (sitting.length > 0) this.#returned.letInLater(sitting)
    return token === undefined ? this.#refusal(election, request) : { kind: 'granted', token: BigInt(token) }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const keys = this.#keys(lease.resources)
    const proposal = this.#proposal()
    if (this.#lone !== undefined) return this.#lone.handOver(keys, lease, next, proposal)
    const trail = this.#trails.end(lease.owner)
    const { token, election } = await this.#elect(
      keys,
      next.owner,
      next.ttlMs,
      false,
      (node) => node.handOver(keys, lease.owner, next, proposal),
      (index) => this.#undo(index, keys, lease.owner),
    )
    // Where the hand-over may not have arrived, or all of it failed, the old owner's keys would stay for their ttl.
    for (const index of token === undefined ? this.#nodes.keys() : election.doubtful()) {
      this.#undo(index, keys, lease.owner)
    }
    // The old owner may still be granted on a slow node, behind the hand-over.
    for (const index of this.#nodes.keys()) this.#released(trail, index, NOT_OURS, keys, lease.owner)
    if (token !== undefined) return { kind: 'granted', token: BigInt(token) }
    if (election.refusals.length > this.#nodes.length - this.#quorum) return { kind: 'refused', reason: 'held' }
    throw this.#failure(election.failures, lease.resources)
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return extendOnQuorum(this.#nodes, leases, {
      deadlines: this.#deadlines,
      timeoutMs: this.#timeoutMs(Math.min(...leases.map(({ ttlMs }) => ttlMs))),
      trails: this.#trails,
      failure: (failures, lease) => this.#failure(failures, lease.resources),
      repair: (index, lease) => this.#repair(index, lease),
    })
  }

  async release(lease: LeaseRef): Promise<Release> {
    const keys = this.#keys(lease.resources)
    this.#wakeups.releasing(lease.owner)
    if (this.#lone !== undefined) {
      return this.#lone.release(keys, lease, () => this.#wakeups.ownSubscriptions(0, keys.channels))
    }
    const trail = this.#trails.end(lease.owner)
    const failures: NodeFailure[] = []
    let ours = 0
    let notOurs = 0
    let awaited = 0
    await ask(this.#nodes, {
      deadlines: this.#deadlines,
      timeoutMs: this.#timeoutMs(lease.ttlMs),
      send: (node) => node.release(keys, lease.owner, lease.token),
      late: (index, answer) => this.#released(trail, index, answer, keys, lease.owner),
      heard: (index, answer) => {
        const node = this.#nodes[index]!
        this.#released(trail, index, answer, keys, lease.owner)
        if (answer.kind === 'failed') failures.push({ node: node.label, cause: answer.cause })
        else {
          if (answer.value.ours) ours++
          else notOurs++
          awaited = Math.max(awaited, answer.value.told - this.#wakeups.ownSubscriptions(index, keys.channels))
        }
        return ours >= this.#quorum || notOurs > this.#nodes.length - this.#quorum
      },
    })
    if (ours >= this.#quorum) return { ours: true, awaited }
    if (notOurs > this.#nodes.length - this.#quorum) return { ours: false, awaited }
    throw this.#failure(failures, lease.resources)
  }

  observe(tell: (event: RoundTrip) => void): void {
    // Of one node the core knows it all.
    if (this.#lone !== undefined) return
    // One time for all ttls: the longest that anyone waits for a node.
    for (const node of this.#nodes) node.observe(this.#timeoutMs(Infinity), tell)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    return this.#wakeups.watch(this.#keys(resources).channels, freed)
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const timeoutMs = this.#timeoutMs(NO_TTL_MS)
    return inspectQuorum(this.#nodes, { prefix: this.#options.prefix, deadlines: this.#deadlines, timeoutMs, resource })
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    const clients = this.#nodes.map(({ client }) => client)
    return checkRedis({ ...this.#options, clients, ttlMs, driftMs: this.limits.driftMs(ttlMs) })
  }

  probe(): Promise<readonly NodeState[]> {
    return probeRedis(this.#nodes, this.#clock)
  }

  init(): Promise<readonly string[]> {
    return initNodes(this.#nodes, (work) => this.#inTime(work))
  }

  async close(): Promise<void> {
    await this.#wakeups.close()
    // What is under way is bounded by the drivers; it is not worth more than a node's time.
    await this.#inTime(Promise.all(this.#nodes.map((node) => node.idle()))).catch(() => undefined)
    this.#deadlines.close()
    for (const node of this.#nodes) node.close()
  }

  async #elect(
    keys: KeySet,
    owner: string,
    ttlMs: number,
    inOrder: boolean,
    acquire: (node: RedisNode) => Promise<Granted | Refused>,
    lateFailure?: (index: number) => void,
  ): Promise<Elected> {
    let quiet = false
    const trail = this.#nodes.length > 1 ? this.#trails.begin(owner) : undefined
    const election = new Election({
      nodes: this.#nodes,
      deadlines: this.#deadlines,
      timeoutMs: this.#timeoutMs(ttlMs),
      inOrder,
      acquire: (node) => acquire(node),
      confirm: (node, token) => node.confirm(keys, owner, token, ttlMs),
      late: (index, failed) => {
        if (election.isLost) this.#undo(index, keys, owner, quiet)
        else if (trail?.over === true) this.#lateGrant(trail, index, keys, owner)
        if (failed) lateFailure?.(index)
      },
      settled: () => {
        if (trail !== undefined) this.#trails.done(owner, trail)
      },
    })
    const token = await election.run()
    this.#highestFence = Math.max(this.#highestFence, election.highestFence)
    // Where someone holds it for certain, or too few nodes answer, nobody need hear that we have let go of the rest: a
    // waiter whom it woke, ourselves among them, would be granted the same rest, let go of it, and wake the others, at the
    // speed of the network, for as long as that lasts.
    quiet = this.#holder(election) !== undefined || election.failures.length > this.#nodes.length - this.#quorum
    if (token === undefined) await this.#withdraw(election, keys, owner, quiet)
    return { token, election }
  }

  /**
   * After a failed attempt: release wherever it was or may have been granted, never under the caller's abort signal.
   * A node that said no did nothing and is left alone. Waits for the nodes that granted, so that the next attempt does
   * not meet its own leftovers.
   */
  async #withdraw(election: Election, keys: KeySet, owner: string, quiet: boolean): Promise<void> {
    for (const index of election.doubtful()) this.#undo(index, keys, owner, quiet)
    const granted = election.granted().map((index) => this.#nodes[index]!)
    if (granted.length === 0) return
    await ask(granted, {
      deadlines: this.#deadlines,
      timeoutMs: this.#timeoutMs(NO_TTL_MS),
      send: (node) => node.release(keys, owner, 0n, quiet),
      heard: () => false,
    })
  }

  /**
   * The release is on its way there, and mostly behind what was granted late: only its answer tells. If that has come, the
   * grant may have been sent after it, also where the release found something: a node without our script is sent the
   * same again once it has it, and meanwhile a repair may have put the key there.
   */
  #lateGrant(trail: Trail, index: number, keys: KeySet, owner: string): void {
    if (trail.released.has(index)) this.#undo(index, keys, owner)
    else trail.late.add(index)
  }

  #released(
    trail: Trail | undefined,
    index: number,
    answer: Answer<{ ours: boolean }>,
    keys: KeySet,
    owner: string,
  ): void {
    const ours = answer.kind === 'answer' && answer.value.ours
    trail?.released.add(index)
    if (!ours && trail?.late.delete(index) === true) this.#undo(index, keys, owner)
  }

  /** Best effort, in the background: the key's ttl does the rest. */
  #undo(index: number, keys: KeySet, owner: string, quiet = false): void {
    this.#nodes[index]!.release(keys, owner, 0n, quiet).catch(() => undefined)
  }

  /** Puts a lost key back on a node, for those who ask it. It proves nothing about the lease. */
  #repair(index: number, lease: LeaseRef): void {
    const trail = this.#trails.begin(lease.owner)
    trail.repairing.add(index)
    trail.repaired.add(index)
    const keys = this.#keys(lease.resources)
    this.#nodes[index]!.acquire(keys, lease.owner, lease.ttlMs, Number(lease.token))
      // Refused, sitting out or away: the next extension finds the key missing again and we try again.
      .catch(() => undefined)
      .finally(() => {
        trail.repairing.delete(index)
        if (trail.over) this.#lateGrant(trail, index, keys, lease.owner)
        this.#trails.done(lease.owner, trail)
      })
  }

  #refusal(election: Election, request: LeaseRequest): Refusal {
    const size = this.#nodes.length
    const { failures, refusals } = election
    if (failures.length > size - this.#quorum) throw this.#failure(failures, request.resources)
    const holder = this.#holder(election) ?? refusals[0]?.holder
    const votes = refusals.filter((refusal) => refusal.holder === holder).length
    // As far as we know: the others have not answered, or were not even asked.
    const mayHoldQuorum = election.granted().length === 0 && votes + size - refusals.length >= this.#quorum
    const named = holder === undefined ? {} : { holder }
    if (votes < this.#quorum && !mayHoldQuorum) return { kind: 'refused', reason: 'split', ...named }
    const remainingMs = this.#freeInMs(election)
    return { kind: 'refused', reason: 'held', ...named, ...(remainingMs === undefined ? {} : { remainingMs }) }
  }

  /** Whom a quorum of nodes names. */
  #holder({ refusals }: Election): string | undefined {
    const votes = (holder: string): number => refusals.filter((refusal) => refusal.holder === holder).length
    return refusals.find(({ holder }) => votes(holder) >= this.#quorum)?.holder
  }

  /** When so many locks have run out that a quorum is free. */
  #freeInMs(election: Election): number | undefined {
    const times = [
      ...election.granted().map(() => 0),
      ...election.refusals.map(({ remainingMs }) => remainingMs ?? Infinity),
    ]
    const freeMs = times.sort((a, b) => a - b)[this.#quorum - 1] ?? times.at(-1)
    return freeMs === undefined || freeMs === Infinity ? undefined : freeMs
  }

  #loneNode(node: RedisNode): LoneNode {
    return new LoneNode(node, {
      deadlines: this.#deadlines,
      timeoutMs: (ttlMs) => this.#timeoutMs(ttlMs),
      failure: (cause, resources) => this.#failure([{ node: node.label, cause }], resources),
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

  /** Our wall clock in µs, or more if a node has: then all nodes come to the same number, even if theirs had drifted apart. */
  #proposal(): number {
    return Math.max(Math.round(this.#clock.wallMs() * 1000), this.#highestFence + 1)
  }

  /** Small against the ttl: a tenth, at least 100 ms (a busy machine), at most 2 s (nobody waits longer for a dead node). */
  #timeoutMs(ttlMs: number): number {
    const { nodeTimeoutMs, replicaWaitMs } = this.#options
    return (nodeTimeoutMs ?? Math.min(Math.max(ttlMs / 10, Math.min(100, ttlMs / 2)), 2000)) + replicaWaitMs
  }

  /** A command that belongs to no lease, with a deadline all the same. */
  #inTime<T>(work: Promise<T>): Promise<T> {
    return inTime(work, this.#deadlines, this.#timeoutMs(NO_TTL_MS))
  }
}

/** For commands that belong to no lease: the time a node has, as if it were one of 10 s. */
const NO_TTL_MS = 10_000

const NOT_OURS: Answer<{ ours: boolean }> = { kind: 'answer', value: { ours: false } }

interface Elected {
  readonly token: number | undefined
  readonly election: Election
}
