import { instant, type Clock, type Timer } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Grant, LeaseRequest, QueuedGrant, Refusal, Watch } from '../../engine.ts'
import { asError, type EngineError, type NodeFailure } from '../../errors.ts'
import { OtherSoftware } from '../../other-software.ts'
import { isOurs } from '../../owner.ts'
import type { Random } from '../../random.ts'
import { ask } from './ask.ts'
import { isPermanent } from './drivers/server-errors.ts'
import { noAnswer, NotSentError } from './errors.ts'
import type { KeySet } from './keys.ts'
import type { LineAnswer, LinePlace } from './line-steps.ts'
import type { RedisNode } from './node.ts'
import { newTicket } from './ticket.ts'
import { quorumOf } from './votes.ts'
import type { RedisWakeups } from './wakeups.ts'

export interface RedisQueuePlan {
  readonly nodes: readonly RedisNode[]
  readonly clock: Clock
  readonly random: Random
  readonly deadlines: Deadlines
  readonly wakeups: RedisWakeups
  timeoutMs(ttlMs: number): number
  keys(resources: readonly string[], shared?: boolean): KeySet
  acquire(request: LeaseRequest): Promise<Grant | Refusal>
  /**
   * An election by claims. Where it is lost, or a node grants late, `left` is called with nodes on which something may be left.
   * Rejects if too few nodes have answered to it.
   */
  claim(request: LeaseRequest, keys: KeySet, owner: string, left: (index: number) => void): Promise<Grant | undefined>
  failure(failures: readonly NodeFailure[], resources: readonly string[]): EngineError
}

/** A waiter comes to the line again and again: that keeps its place, and finds an offer whose message was lost. */
const REPEAT_MS = 1000
/** How often it comes where no messages reach it, or not yet. */
const POLL_MS = { first: 5, factor: 2, most: 100 }
/** How often a ticket is fitted to the clocks of the nodes. After that, no ticket fits enough of them. */
const MOST_FITS = 2
/** How often it comes while other software holds the lock: its release tells nobody. */
const FOREIGN_MS = { first: 25, factor: 1.25, most: 500 }
/** Without a quorum of answers for this long, it leaves: it would only be in the way of those who can get the lock. */
const LONGEST_SILENCE_MS = 3000
/** What is known of one node. */
interface NodeLine {
  /** It has offered the lock to the present owner. */
  offered: boolean
  /** A request is under way. */
  isAsked: boolean
  /** An offer was told while it was: messages and answers come by different connections, so which is newer is not known. */
  isTold: boolean
  /** The owner of a lost claim that may still have a place or the lock here. */
  old?: string | undefined
  /** It got the lock while a request was under way, which may have come before that. */
  isLeftOver: boolean
  /** To the last request. */
  answer?: LineAnswer | undefined
  failure?: Error | undefined
  /** When the first request that has not been answered was sent; undefined while every one has been. */
  silentSinceMs?: number | undefined
  /** By then it must have answered again. */
  deadline?: Deadline | undefined
  /** Why it does not answer: the last request failed, or has had no answer in time. */
  trouble?: Error | undefined
}

/** One place in the lines of all nodes, until the lease is ours. */
export class LineWait {
  readonly #plan: RedisQueuePlan
  readonly #request: LeaseRequest
  readonly #newOwner: () => string
  readonly #otherSoftware: OtherSoftware
  readonly #keys: KeySet
  readonly #quorum: number
  readonly #beganMs: number
  readonly #lines: NodeLine[]
  #ticket: number
  #owner: string
  #stage: 'waiting' | 'claiming' | 'won' | 'left' = 'waiting'
  #isArmed = false
  #foreign = 0
  #polls = 0
  #fits = 0
  /** Too few nodes have answered lately. */
  #isSilent = false
  /** The caller has been told that too few nodes answer. */
  #isFailing = false
  #wake: () => void = () => undefined
  #expire: () => void = () => undefined
  #timer: Timer | undefined
  #dueMs = Infinity

  constructor(
    plan: RedisQueuePlan,
    request: LeaseRequest,
    newOwner: () => string,
    otherSoftware: OtherSoftware,
    sinceMs: number,
  ) {
    this.#plan = plan
    this.#request = request
    this.#newOwner = newOwner
    this.#otherSoftware = otherSoftware
    this.#keys = plan.keys(request.resources, request.shared)
    this.#quorum = quorumOf(plan.nodes.length)
    this.#beganMs = sinceMs
    this.#ticket = newTicket(plan.clock) - Math.round((plan.clock.monotonicMs() - sinceMs) * 1000)
    this.#owner = request.owner
    this.#lines = plan.nodes.map(() => ({ offered: false, isAsked: false, isTold: false, isLeftOver: false }))
  }

  /** Undefined if there is no line. */
  async run(signal: AbortSignal): Promise<QueuedGrant | undefined> {
    const watch = this.#watch()
    const abort = (): void => this.#wake()
    signal.addEventListener('abort', abort)
    try {
      this.#comeToAll()
      while (!signal.aborted) {
        if (this.#offers >= this.#quorum) {
          const grant = await this.#claim()
          if (grant !== undefined) return grant
          continue
        }
        const isWoken = await this.#pause()
        if (this.#hasNoLine) return undefined
        const failure = this.#unusable ?? (isWoken ? undefined : this.#silent())
        if (failure !== undefined) throw failure
        if (isWoken) continue
        this.#fitTicket()
        this.#comeToAll()
      }
      throw signal.reason
    } finally {
      signal.removeEventListener('abort', abort)
      this.#timer?.cancel()
      for (const { deadline } of this.#lines) deadline?.cancel()
      watch.close()
      if (this.#stage !== 'won') await this.#leave()
    }
  }

  get #isOver(): boolean {
    return this.#stage === 'won' || this.#stage === 'left'
  }

  get #offers(): number {
    return this.#lines.filter(({ offered }) => offered).length
  }

  #watch(): Watch {
    const freed = (): void => this.#freed()
    const watch = this.#plan.wakeups.watch(this.#keys.channels, freed, (index, owner) => this.#offered(index, owner))
    void watch.armed.then((armed) => {
      this.#isArmed = armed
      // An offer between the first look and the subscription would go unnoticed.
      if (armed) this.#freed()
    })
    return watch
  }

  #offered(index: number, owner: string): void {
    const line = this.#lines[index]!
    if (owner === this.#owner) {
      line.isTold = line.isAsked
      // Of several resources one is offered, and another may be held: the node says whether all are.
      if (this.#request.resources.length > 1) return this.#come(index)
      line.offered = true
      if (this.#offers >= this.#quorum) this.#wake()
    } else if (owner === line.old) this.#come(index)
  }

  /** A release without a line, or messages were lost: the lock may be free. */
  #freed(): void {
    const pauseMs = this.#otherSoftware.pauseMs(this.#request.resources)
    if (pauseMs === 0) this.#comeToAll()
    else this.#plan.clock.timer(() => this.#comeToAll(), pauseMs, true)
  }

  /** Waits for enough offers, or until it is time to come again. Returns true for the former, and when it is woken. */
  #pause(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#timer?.cancel()
        resolve(true)
      }
      this.#expire = () => {
        this.#wake = () => undefined
        resolve(this.#offers >= this.#quorum)
      }
      this.#dueMs = Infinity
      this.#endPauseIn(this.#repeatMs())
    })
  }

  /** Shortens the pause: to the time at which a lock runs out that nobody renews, or at which other software is looked for. */
  #endPauseIn(delayMs: number): void {
    const dueMs = this.#plan.clock.monotonicMs() + delayMs
    if (dueMs >= this.#dueMs) return
    this.#dueMs = dueMs
    this.#timer?.cancel()
    this.#timer = this.#plan.clock.timer(() => this.#expire(), delayMs)
  }

  #repeatMs(): number {
    const { first, factor, most } = POLL_MS
    return this.#isArmed ? REPEAT_MS : Math.min(first * factor ** this.#polls++, most)
  }

  /** Somebody else has the lock of a node. */
  #behind({ holder, remainingMs = REPEAT_MS }: Extract<LineAnswer, { kind: 'behind' }>): void {
    this.#endPauseIn(Math.max(remainingMs, 0) + 1)
    if (holder === '' || isOurs(holder)) {
      this.#foreign = 0
      return
    }
    const { first, factor, most } = FOREIGN_MS
    this.#otherSoftware.saw(this.#request.resources)
    this.#endPauseIn(Math.min(first * factor ** this.#foreign++, most))
  }

  #comeToAll(): void {
    if (this.#stage !== 'waiting') return
    for (const index of this.#lines.keys()) this.#come(index)
  }

  /** One request at a time a node: a frozen one would be sent more and more. */
  #come(index: number): void {
    const line = this.#lines[index]!
    if (line.isAsked || this.#isOver) return
    line.isAsked = true
    line.isTold = false
    line.isLeftOver = false
    line.answer = undefined
    line.failure = undefined
    line.silentSinceMs ??= this.#plan.clock.monotonicMs()
    if (line.deadline === undefined) this.#expectAnswer(index, line)
    const node = this.#plan.nodes[index]!
    const { old } = line
    const owner = this.#owner
    const waitedUs = Math.round((this.#plan.clock.monotonicMs() - this.#beganMs) * 1000)
    const place: LinePlace = { owner, ticket: this.#ticket, waitedUs, old }
    node
      .enqueue(this.#keys, place, this.#request.ttlMs, () => !this.#isOver && owner === this.#owner)
      .then(
        (answer) => this.#answered(index, owner, old, answer),
        (error: unknown) => {
          line.isAsked = false
          if (this.#isOver) return this.#undo(index, owner, old)
          line.failure = asError(error)
          // A node that refuses for good has answered.
          this.#troubled(line, isPermanent(error) ? undefined : line.failure)
          if (this.#hasNoLine || this.#unusable !== undefined) this.#wake()
        },
      )
  }

  #answered(index: number, owner: string, old: string | undefined, answer: LineAnswer): void {
    const line = this.#lines[index]!
    line.isAsked = false
    if (this.#isOver) return this.#undo(index, owner, old)
    line.answer = answer
    line.silentSinceMs = undefined
    this.#expectAnswer(index, line)
    this.#troubled(line, undefined)
    if (line.old === old && !line.isLeftOver) line.old = undefined
    // A node that refuses the ticket has not taken the old place away.
    if (answer.kind === 'clock') this.#undo(index, old)
    if (owner !== this.#owner) {
      // Claims were lost in the meantime. The present owner takes over what the last one before it has.
      if (line.old === undefined) line.old = owner
      else if (line.old !== owner) this.#undo(index, owner)
      return this.#come(index)
    }
    line.offered = answer.kind === 'offered'
    if (answer.kind === 'behind') this.#behind(answer)
    if (line.isLeftOver || (line.isTold && !line.offered && this.#stage !== 'claiming')) this.#come(index)
    if (this.#offers >= this.#quorum) this.#wake()
  }

  /** An ordinary election. Only answers to the claim itself are votes, and validity counts from before it was sent. */
  async #claim(): Promise<QueuedGrant | undefined> {
    const since = instant(this.#plan.clock)
    const owner = this.#owner
    this.#stage = 'claiming'
    const grant = await this.#plan
      .claim(this.#request, this.#keys, owner, (index) => this.#leftOver(index, owner))
      .finally(() => (this.#stage = 'waiting'))
    if (grant !== undefined) {
      this.#stage = 'won'
      // What an owner before it may still have somewhere.
      for (const [index, { old }] of this.#lines.entries()) this.#undo(index, old)
      return { ...grant, owner, since }
    }
    this.#owner = this.#newOwner()
    for (const [index, line] of this.#lines.entries()) {
      line.offered = false
      this.#undo(index, line.old)
      line.old = owner
    }
    this.#comeToAll()
    return undefined
  }

  /** A node has granted a lost claim after all. */
  #leftOver(index: number, owner: string): void {
    const line = this.#lines[index]!
    if (this.#isOver || (line.old !== undefined && line.old !== owner)) return this.#undo(index, owner)
    line.old = owner
    line.isLeftOver = line.isAsked
    this.#come(index)
  }

  /** Too few nodes have a line for us: the user may not use one, something else is there, or their clocks are far apart. */
  get #hasNoLine(): boolean {
    const without = this.#lines.filter(({ failure }) => failure !== undefined && isPermanent(failure)).length
    return without > this.#lines.length - this.#quorum || this.#fits > MOST_FITS
  }

  #expectAnswer(index: number, line: NodeLine): void {
    const { nodes, deadlines } = this.#plan
    const timeoutMs = this.#plan.timeoutMs(this.#request.ttlMs)
    line.deadline?.cancel()
    // From one answer to the next request, and from there to its answer.
    line.deadline = deadlines.start(REPEAT_MS + timeoutMs, () => {
      // During a claim it is not asked.
      if (line.silentSinceMs === undefined) this.#expectAnswer(index, line)
      else this.#troubled(line, line.trouble ?? noAnswer(timeoutMs, nodes[index]!.client))
    })
  }

  /** Tells the caller when too few nodes answer, and when enough of them do again: its time may be over before we give up. */
  #troubled(line: NodeLine, trouble: Error | undefined): void {
    line.trouble = trouble
    const failure = this.#failureIf((one) => one.trouble)
    if (failure !== undefined || this.#isFailing) this.#request.failing?.(failure)
    this.#isFailing = failure !== undefined
  }

  /** Too many clients are closed, and asking them again cannot help. */
  get #unusable(): EngineError | undefined {
    return this.#failureIf(({ failure }) =>
      failure instanceof NotSentError && failure.permanent ? failure : undefined,
    )
  }

  #silent(): EngineError | undefined {
    const longAgoMs = this.#plan.clock.monotonicMs() - LONGEST_SILENCE_MS
    const silent = this.#failureIf(({ silentSinceMs = Infinity, failure }, { client }) =>
      silentSinceMs < longAgoMs ? (failure ?? noAnswer(LONGEST_SILENCE_MS, client)) : undefined,
    )
    const wasSilent = this.#isSilent
    this.#isSilent = silent !== undefined
    // Twice in a row: after a pause of this process, the answers have not been read yet.
    return wasSilent ? silent : undefined
  }

  /** If the nodes without a cause are no quorum. */
  #failureIf(causeOf: (line: NodeLine, node: RedisNode) => Error | undefined): EngineError | undefined {
    const { nodes } = this.#plan
    const failures = nodes.flatMap((node, index) => {
      const cause = causeOf(this.#lines[index]!, node)
      return cause === undefined ? [] : [{ node: node.label, cause }]
    })
    if (failures.length <= nodes.length - this.#quorum) return undefined
    return this.#plan.failure(failures, this.#request.resources)
  }

  /** Where our clock does not fit those of the nodes, theirs counts: the middle one, so that a wrong one decides nothing. */
  #fitTicket(): void {
    const tickets = this.#lines.flatMap(({ answer }) => (answer?.kind === 'clock' ? [answer.ticket] : []))
    if (tickets.length <= this.#lines.length - this.#quorum) return
    this.#fits++
    this.#ticket = tickets.sort((a, b) => a - b)[Math.floor((tickets.length - 1) / 2)]!
  }

  /** Gives up the place, and what was offered. */
  async #leave(): Promise<void> {
    this.#stage = 'left'
    const { nodes, deadlines } = this.#plan
    for (const [index, { old }] of this.#lines.entries()) this.#undo(index, old)
    await ask(nodes, {
      deadlines,
      timeoutMs: this.#plan.timeoutMs(this.#request.ttlMs),
      send: (node) => node.release(this.#keys, this.#owner, 0n),
      heard: () => false,
    })
  }

  /** Best effort, in the background: a place that nobody comes to is given up by the node. */
  #undo(index: number, ...owners: (string | undefined)[]): void {
    for (const owner of owners) {
      // The lease that was won is given back by its own release.
      if (owner === undefined || (this.#stage === 'won' && owner === this.#owner)) continue
      this.#plan.nodes[index]!.release(this.#keys, owner, 0n).catch(() => undefined)
    }
  }
}
