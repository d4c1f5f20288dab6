import type { Clock } from '../../clock.ts'
import type { LeaseRef, LeaseRequest, RoundTrip } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { Admission } from './voters/admission.ts'
import type { RedisClient } from './client.ts'
import { isDenied, isNoScript, isPermanent, isReadOnly, namingRight, plainlyTooOld } from './drivers/server-errors.ts'
import { NotSentError, ReplicaError } from './errors.ts'
import { RoundTrips } from './round-trips.ts'
import { keySet, type KeySet } from './keys.ts'
import { claimStep, enqueueStep, type LineAnswer, type LinePlace } from './line-steps.ts'
import { piece, wordsOf, type Piece } from './pieces.ts'
import { confirmReaderStep, extendReadersStep, releaseReaderStep, shareStep } from './readers-steps.ts'
import { Answer, Request, type Heard, type StepListener } from './request.ts'
import { ACQUIRE, type Script } from './scripts.ts'
import {
  acquireStep,
  confirmStep,
  extendStep,
  handOverStep,
  headOf,
  inspectStep,
  numeric,
  releaseStep,
  type NodeGrant,
  type NodeLease,
  type NodeRefusal,
  type NodeRelease,
  type Step,
} from './steps.ts'
import { Turn } from './turn.ts'
import type { NodeAnswer } from './votes.ts'

export interface NodeOptions {
  readonly clock: Clock
  readonly prefix: string
  readonly fenceTtlMs: number
  /** 0 when a node that restarted need not sit out. */
  readonly sitOutMs: number
  readonly random: Random
  /** How many replicas must acknowledge a write, and within how many milliseconds. */
  readonly replicas: { readonly count: number; readonly withinMs: number }
  /** Asked with every step: who is to hear the answer of this node, also if it comes too late for the decision. Default nobody. */
  readonly hear?: ((step: Step<unknown>) => Heard | undefined) | undefined
}

/**
 * Drivers keep every command that a frozen server has not answered in memory, forever. This many commands are enough. From
 * then on one command is sent in this time: a driver may have lost the answers to the others with their connection.
 */
const SILENT = { commands: 1000, ms: 2000 }

/** How often in one request a node may be found without the script by which it votes. */
const MOST_ENTRIES = 3

/** How many resources' key names are kept: a lease needs them at least twice. */
const MOST_KEYS = 1000

/** One Redis master: sends the protocol's steps to it, and knows whether it answers. */
export class RedisNode {
  readonly client: RedisClient
  readonly label: string
  /** Undefined where every node votes at all times. */
  readonly admission: Admission | undefined
  readonly #options: NodeOptions
  readonly #turn: Turn
  readonly #keys = new Map<string, KeySet>()
  readonly #readerKeys = new Map<string, KeySet>()
  /** No acquire was answered yet: it looks at the rights of this user, too. */
  #isFirst = true
  /** Undefined where nobody observes. */
  #roundTrips: RoundTrips | undefined
  #unanswered = 0
  /** How many of them may change something. */
  #changing = 0
  #answers = 0
  /** When, and after how many answers, this node was last seen to answer at all. */
  #seen = { answers: -1, atMs: 0 }
  /** When a node that is silent was last sent a command. */
  #triedMs = -Infinity
  #whenIdle: (() => void) | undefined
  /** While it is asked for its master. */
  #replica: Promise<ReplicaError> | undefined

  constructor(client: RedisClient, label: string, options: NodeOptions) {
    this.client = client
    this.label = label
    this.#options = options
    this.#turn = new Turn(client.cluster, (requests) => {
      if (requests.length === 1) this.#callOne(requests[0]!)
      else this.#callTogether(requests)
    })
    const { prefix, sitOutMs, random } = options
    this.admission = sitOutMs === 0 ? undefined : new Admission(client, prefix, sitOutMs, random)
  }

  // Steps for every node of a quorum alike.

  acquireStep(keys: KeySet, owner: string, ttlMs: number, proposal: number): Step<NodeGrant | NodeRefusal> {
    const fenceTtlMs = this.#fenceTtlMs(ttlMs)
    if (keys.shared) return shareStep(keys, owner, ttlMs, proposal, fenceTtlMs, this.#publish)
    const step = acquireStep(keys, owner, ttlMs, proposal, fenceTtlMs, this.#isFirst)
    if (!this.#isFirst) return step
    const read = (reply: unknown, script: Script): NodeGrant | NodeRefusal => {
      const answer = step.read(reply, script)
      this.#isFirst = false
      return answer
    }
    return { ...step, read }
  }

  /** As `acquireStep`, for an owner to whom the lock is offered. */
  claimStep(keys: KeySet, owner: string, ttlMs: number, proposal: number): Step<NodeGrant | NodeRefusal> {
    if (keys.shared) return this.acquireStep(keys, owner, ttlMs, proposal)
    return claimStep(keys, owner, ttlMs, proposal, this.#fenceTtlMs(ttlMs))
  }

  handOverStep(
    keys: KeySet,
    lease: Pick<LeaseRef, 'owner' | 'token'>,
    next: Pick<LeaseRequest, 'owner' | 'ttlMs'>,
    proposal: number,
    isVote: boolean,
  ): Step<NodeGrant | NodeRefusal> {
    return handOverStep(keys, lease, next, proposal, this.#fenceTtlMs(next.ttlMs), isVote)
  }

  confirmStep(keys: KeySet, owner: string, token: number, ttlMs: number): Step<NodeAnswer> {
    const step = keys.shared ? confirmReaderStep : confirmStep
    return step(keys, owner, token, this.#fenceTtlMs(ttlMs))
  }

  /** With `quiet` no waiter is woken. Without `passOn` the lock is free after it, and not offered to the first in line. */
  releaseStep(keys: KeySet, owner: string, token: bigint, quiet = false, passOn = true): Step<NodeRelease> {
    const publish = quiet ? '' : this.#publish
    const step = keys.shared ? releaseReaderStep : releaseStep
    return step(keys, owner, token, publish, this.#fenceTtlMs(0), passOn)
  }

  /** For each lease: is it still its owner's here? All are shared, or none. On a Cluster the leases must share a hash slot. */
  extendStep(leases: readonly LeaseRef[]): Step<readonly boolean[]> {
    const isShared = leases[0]?.shared === true
    const keys = leases.map(({ resources }) => this.keys(resources, isShared))
    const fenceTtlMs = this.#fenceTtlMs(Math.max(...leases.map(({ ttlMs }) => ttlMs)))
    // A counter outlives its last write by fenceTtl; a lease that gets that old has it written again.
    const oldUs = Math.round(this.#options.clock.wallMs() - this.#options.fenceTtlMs / 2) * 1000
    if (isShared) return extendReadersStep(leases, keys, fenceTtlMs, oldUs)
    const pairs = keys.flatMap((one) => one.pairs)
    return extendStep(leases, pairs, fenceTtlMs, oldUs)
  }

  // Steps that are sent by themselves, now and then.

  acquire(keys: KeySet, owner: string, ttlMs: number, proposal: number): Promise<NodeGrant | NodeRefusal> {
    return this.#ask(this.acquireStep(keys, owner, ttlMs, proposal))
  }

  /** `step`: where it was made for several nodes. */
  extend(leases: readonly LeaseRef[], step = this.extendStep(leases)): Promise<readonly boolean[]> {
    return this.#ask(step)
  }

  /** What an adoption has taken becomes the old owner's again, where it is still the next owner's. */
  giveBack(keys: KeySet, next: string, lease: LeaseRef, proposal: number): Promise<NodeGrant | NodeRefusal> {
    return this.#ask(this.handOverStep(keys, { owner: next, token: lease.token }, lease, proposal, false))
  }

  release(keys: KeySet, owner: string, token: bigint, quiet = false): Promise<NodeRelease> {
    return this.#ask(this.releaseStep(keys, owner, token, quiet))
  }

  /** Comes to the line. A node that sits out has none. */
  enqueue(keys: KeySet, place: LinePlace, ttlMs: number, isWanted: () => boolean): Promise<LineAnswer> {
    return this.#ask(enqueueStep(keys, place, ttlMs, this.#publish), isWanted)
  }

  inspect(keys: KeySet): Promise<readonly NodeLease[]> {
    return this.#ask(inspectStep(keys))
  }

  /** The way of every step. `index`: by which the listener knows this node. Fails with `NotSentError` if there is no use in sending. */
  send<T>(step: Step<T>, to: StepListener<T>, index: number): void {
    const refused = this.#refused()
    const landed = refused === undefined ? this.#roundTrips?.begin(step.script.name) : undefined
    const request = new Request(step, to, index, landed, this.#options.hear?.(step)) as Request
    if (refused !== undefined) return queueMicrotask(() => request.failed(refused))
    this.#unanswered++
    if (step.isLook !== true) this.#changing++
    if (step.vote === undefined || this.admission === undefined) return this.#turn.add(request)
    const { script } = this.admission
    if (script === undefined) return void this.#enter(request, this.admission)
    request.script = script
    this.#turn.add(request)
  }

  observe(silentAfterMs: number, tell: (event: RoundTrip) => void): void {
    this.#roundTrips = new RoundTrips(this.label, this.#options.clock, silentAfterMs, tell)
  }

  /** Commands that are not answered yet are reported as silent; nothing is reported after that. */
  close(): void {
    this.#roundTrips?.close()
    this.#roundTrips = undefined
  }

  /** Resolves when every command sent has been answered, except for those that only look. */
  async idle(): Promise<void> {
    while (this.#changing > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve))
  }

  /** Commands sent and not answered yet. */
  get unanswered(): number {
    return this.#unanswered
  }

  keys(resources: readonly string[], shared = false): KeySet {
    if (resources.length > 1) return keySet(this.#options.prefix, resources, shared)
    const known = shared ? this.#readerKeys : this.#keys
    let keys = known.get(resources[0]!)
    if (keys === undefined) {
      keys = keySet(this.#options.prefix, resources, shared)
      if (known.size >= MOST_KEYS) known.clear()
      known.set(resources[0]!, keys)
    }
    return keys
  }

  get #publish(): 'publish' | 'spublish' {
    return this.client.cluster ? 'spublish' : 'publish'
  }

  /** The counter outlives any lease it was raised for. */
  #fenceTtlMs(ttlMs: number): number {
    return this.#options.fenceTtlMs + ttlMs
  }

  #ask<T>(step: Step<T>, isWanted?: () => boolean): Promise<T> {
    const answer = new Answer<T>(isWanted)
    this.send(step, answer, 0)
    return answer.promise
  }

  /** Why there is no use in sending anything. */
  #refused(): Error | undefined {
    const unusable = this.client.unusable()
    if (unusable !== undefined) return new NotSentError(`its client cannot be used: ${unusable}`, true)
    if (!this.#isSilent()) return undefined
    const left = `has left ${this.#unanswered} commands unanswered`
    return new NotSentError(`${left}: one more is sent every ${SILENT.ms} ms until it answers`)
  }

  /**
   * By the hash of the script, and by its text only where the server does not know it: new, restarted, failed over, flushed. A vote
   * of a node that sits out after a restart never goes by text.
   */
  #callOne(request: Request, byText = false): void {
    const { script, step } = request
    this.#run(alone(callOf(script, byText), step), [request], (error, reply, acknowledged) => {
      if (byText || !isNoScript(error)) this.#settle(request, this.#named(error, script), reply, acknowledged)
      else if (step.vote === undefined || this.admission === undefined) this.#callOne(request, true)
      else void this.#enter(request, this.admission, script)
    })
  }

  /** Several steps in one call, as `#callOne` makes it. */
  #callTogether(requests: readonly Request[], byText = false): void {
    const vote = requests.find(({ step }) => step.vote !== undefined)
    const script = vote?.script ?? ACQUIRE
    this.#run(together(callOf(script, byText), requests), requests, (error, replies, acknowledged) => {
      const isUnknown = !byText && isNoScript(error)
      if (isUnknown && (vote === undefined || this.admission === undefined)) this.#callTogether(requests, true)
      else if (isUnknown || isDenied(error)) {
        // Nothing was done. A user who may not use one of the keys must cost the others nothing.
        for (const request of requests) this.#callAlone(request)
      } else
        for (const [index, request] of requests.entries())
          this.#settlePart(request, index, error, replies, acknowledged)
    })
  }

  /** After a call that failed. Meanwhile a vote may have been given up, and what it was granted now would stay. */
  #callAlone(request: Request): void {
    if (request.isWanted) this.#callOne(request)
    else this.#settle(request, new NotSentError('was asked again when the attempt was over'), undefined, undefined)
  }

  #run(command: readonly Piece[], requests: readonly Request[], settle: Settle): void {
    const { client } = this
    const { count, withinMs } = this.#options.replicas
    const key = requests[0]!.step.keys.words[0]!
    const fail = (error: unknown): void => settle(error)
    if (count > 0 && requests.some(({ step }) => step.wrote !== undefined)) {
      const wait = ['WAIT', String(count), String(withinMs)]
      const replies = client.runTogether([wordsOf(command), wait], key)
      replies.then(([reply, acknowledged]) => settle(undefined, reply, acknowledged), fail)
    } else if (client.send === undefined)
      client.run(wordsOf(command), key).then((reply) => settle(undefined, reply), fail)
    else client.send(command, settle)
  }

  /** The answer to one of several steps of a call. */
  #settlePart(request: Request, index: number, error: unknown, replies: unknown, acknowledged: unknown): void {
    const reply: unknown = Array.isArray(replies) ? replies[index] : undefined
    const isFailure = Array.isArray(reply) && reply[0] === 'failed'
    this.#settle(request, this.#named(isFailure ? new Error(String(reply[1])) : error), reply, acknowledged)
  }

  #named(error: unknown, script?: Script): unknown {
    return error === undefined ? error : namingRight(plainlyTooOld(error), script?.text, this.#options.prefix)
  }

  #settle(request: Request, error: unknown, reply: unknown, acknowledged: unknown): void {
    if (isReadOnly(error) && !(error instanceof ReplicaError)) {
      this.#replica ??= ReplicaError.of(error, this.client).finally(() => (this.#replica = undefined))
      return void this.#replica.then((named) => this.#settle(request, named, reply, acknowledged))
    }
    const instead = isPermanent(error) ? request.step.otherwise?.() : undefined
    if (instead !== undefined) {
      request.step = instead
      return this.#callOne(request)
    }
    this.#answered(request.step)
    if (error !== undefined) request.failed(error)
    else if (acknowledged === undefined) request.answered(reply)
    else request.answered(reply, (answer) => this.#assertAcknowledged(request.step, answer, acknowledged))
  }

  /** A step that must not be lost in a failover counts once enough replicas have it, if the user asked for that. */
  #assertAcknowledged<T>(step: Step<T>, answer: T, acknowledged: unknown): void {
    const { count, withinMs } = this.#options.replicas
    if (step.wrote?.(answer) !== true || numeric(acknowledged, step.script) >= count) return
    const had = acknowledged === 1 ? '1 replica has' : `${String(acknowledged)} replicas have`
    throw new Error(`${had} acknowledged it within ${withinMs} ms, and ${count} must`)
  }

  /**
   * Lets the node in first, and asks it then. Never sends the script's text: where the node does not have the script, it may
   * not vote.
   */
  async #enter(request: Request, admission: Admission, stale?: Script): Promise<void> {
    try {
      if (++request.entries > MOST_ENTRIES) throw new Error('does not vote: its scripts are flushed again and again')
      const script = await admission.enter(request.step.vote!.ttlMs, stale)
      // What it would grant now would be in the way of the next attempt.
      if (!request.isWanted) throw new NotSentError('was let in to vote when the attempt was over')
      const refused = this.#refused()
      if (refused !== undefined) throw refused
      request.script = script
      this.#turn.add(request)
    } catch (error) {
      this.#settle(request, error, undefined, undefined)
    }
  }

  #isSilent(): boolean {
    if (this.#unanswered < SILENT.commands) return false
    const now = this.#options.clock.monotonicMs()
    if (this.#answers !== this.#seen.answers) this.#seen = { answers: this.#answers, atMs: now }
    if (now - this.#seen.atMs <= SILENT.ms) return false
    if (now - this.#triedMs <= SILENT.ms) return true
    this.#triedMs = now
    return false
  }

  #answered({ isLook }: Step<unknown>): void {
    this.#answers++
    this.#unanswered--
    if (isLook !== true && --this.#changing === 0) this.#whenIdle?.()
  }
}

type Settle = (error: unknown, reply?: unknown, acknowledged?: unknown) => void

const TWO = piece('2')

function callOf(script: Script, byText: boolean): Piece {
  return byText ? piece('EVAL', script.text) : script.call
}

/** The script, the number of keys, the keys, the arguments. */
function alone(call: Piece, { keys, args }: Step<unknown>): Piece[] {
  return [call, keys.words.length === 2 ? TWO : piece(String(keys.words.length)), keys, args]
}

function together(call: Piece, requests: readonly Request[]): Piece[] {
  const keys: Piece[] = []
  const args: Piece[] = []
  let count = 0
  for (const { step } of requests) {
    count += step.keys.words.length
    keys.push(step.keys)
    args.push(headOf(step), step.args)
  }
  return [call, piece(String(count)), ...keys, ...args]
}
