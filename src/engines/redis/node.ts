import type { Clock } from '../../clock.ts'
import type { LeaseRef, RoundTrip } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { Admission } from './voters/admission.ts'
import type { RedisClient } from './client.ts'
import { isNoScript } from './drivers/server-errors.ts'
import { NotSentError } from './errors.ts'
import { RoundTrips } from './round-trips.ts'
import { keySet, type KeySet } from './keys.ts'
import { ACQUIRE, type Script } from './scripts.ts'
import {
  acquireStep,
  confirmStep,
  extendStep,
  handOverStep,
  inspectStep,
  numeric,
  releaseStep,
  type NodeGrant,
  type NodeLease,
  type NodeRefusal,
  type NodeRelease,
  type Step,
} from './steps.ts'
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
  /** Its last command failed: when nodes are asked one by one, it is asked last. */
  suspect = false
  /** Undefined where every node votes at all times. */
  readonly admission: Admission | undefined
  readonly #options: NodeOptions
  readonly #keys = new Map<string, KeySet>()
  /** Undefined where nobody observes. */
  #roundTrips: RoundTrips | undefined
  #unanswered = 0
  #answers = 0
  /** When, and after how many answers, this node was last seen to answer at all. */
  #seen = { answers: -1, atMs: 0 }
  /** When a node that is silent was last sent a command. */
  #triedMs = -Infinity
  #whenIdle: (() => void) | undefined

  constructor(client: RedisClient, label: string, options: NodeOptions) {
    this.client = client
    this.label = label
    this.#options = options
    const { sitOutMs, random } = options
    this.admission = sitOutMs === 0 ? undefined : new Admission(client, sitOutMs, random)
  }

  /** `isWanted` is asked again where the node first had to be let in: that may have taken longer than anyone waits. */
  acquire(
    keys: KeySet,
    owner: string,
    ttlMs: number,
    proposal: number,
    isWanted: () => boolean = () => true,
  ): Promise<NodeGrant | NodeRefusal> {
    const fenceTtlMs = this.#fenceTtlMs(ttlMs)
    const { admission } = this
    if (admission === undefined) return this.#ask(acquireStep(ACQUIRE, keys, owner, ttlMs, proposal, fenceTtlMs))
    const step = (script: Script): Step<NodeGrant | NodeRefusal> =>
      acquireStep(script, keys, owner, ttlMs, proposal, fenceTtlMs)
    const { script } = admission
    if (script === undefined) return this.#enter(admission, ttlMs, undefined, step, isWanted)
    return this.#ask(step(script), () => this.#enter(admission, ttlMs, script, step, isWanted))
  }

  handOver(
    keys: KeySet,
    owner: string,
    next: { readonly owner: string; readonly ttlMs: number },
    proposal: number,
  ): Promise<NodeGrant | NodeRefusal> {
    return this.#ask(handOverStep(keys, owner, next, proposal, this.#fenceTtlMs(next.ttlMs)))
  }

  confirm(keys: KeySet, owner: string, token: number, ttlMs: number): Promise<NodeAnswer> {
    return this.#ask(confirmStep(keys, owner, token, this.#fenceTtlMs(ttlMs)))
  }

  /** For each lease: is it still its owner's here? On a Cluster the leases must share a hash slot. */
  extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const pairs = leases.flatMap(({ resources }) => this.keys(resources).pairs)
    const longestMs = Math.max(...leases.map(({ ttlMs }) => ttlMs))
    // A counter outlives its last write by fenceTtl; a lease that gets that old has it written again.
    const oldUs = Math.round(this.#options.clock.wallMs() - this.#options.fenceTtlMs / 2) * 1000
    return this.#ask(extendStep(leases, pairs, this.#fenceTtlMs(longestMs), oldUs))
  }

  /** With `quiet` no waiter is woken. */
  release(keys: KeySet, owner: string, token: bigint, quiet = false): Promise<NodeRelease> {
    const publish = quiet ? '' : this.client.cluster ? 'spublish' : 'publish'
    return this.#ask(releaseStep(keys, owner, token, publish, this.#fenceTtlMs(0)))
  }

  inspect(keys: KeySet): Promise<readonly NodeLease[]> {
    return this.#ask(inspectStep(keys))
  }

  observe(silentAfterMs: number, tell: (event: RoundTrip) => void): void {
    this.#roundTrips = new RoundTrips(this.label, this.#options.clock, silentAfterMs, tell)
  }

  /** Commands that are not answered yet are reported as silent; nothing is reported after that. */
  close(): void {
    this.#roundTrips?.close()
    this.#roundTrips = undefined
  }

  /** Resolves when every command sent has been answered. */
  async idle(): Promise<void> {
    while (this.#unanswered > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve))
  }

  /** Commands sent and not answered yet. */
  get unanswered(): number {
    return this.#unanswered
  }

  keys(resources: readonly string[]): KeySet {
    if (resources.length > 1) return keySet(this.#options.prefix, resources)
    let keys = this.#keys.get(resources[0]!)
    if (keys === undefined) {
      keys = keySet(this.#options.prefix, resources)
      if (this.#keys.size >= MOST_KEYS) this.#keys.clear()
      this.#keys.set(resources[0]!, keys)
    }
    return keys
  }

  /** The counter outlives any lease it was raised for. */
  #fenceTtlMs(ttlMs: number): number {
    return this.#options.fenceTtlMs + ttlMs
  }

  /** The way of every step: rejects with `NotSentError` where sending makes no sense. `unknown`: see `#send`. */
  #ask<T>(step: Step<T>, unknown?: () => Promise<T>): Promise<T> {
    const unusable = this.client.unusable()
    if (unusable !== undefined) return Promise.reject(new NotSentError(`its client cannot be used: ${unusable}`, true))
    if (this.#isSilent()) {
      const left = `has left ${this.#unanswered} commands unanswered`
      return Promise.reject(new NotSentError(`${left}: one more is sent every ${SILENT.ms} ms until it answers`))
    }
    if (this.#roundTrips === undefined) return this.#send(step, unknown)
    return this.#roundTrips.follow(step.script.name, () => this.#send(step, unknown))
  }

  /**
   * Sends the script's hash, and its text only where the server does not know it: new, restarted, failed over, or flushed.
   * `unknown`: what to do then instead. Written with callbacks: every lease passes here twice a node, and each `async` in
   * between would cost it.
   */
  #send<T>(step: Step<T>, unknown?: () => Promise<T>, withText = false): Promise<T> {
    const { script, keys, args } = step
    const command = [
      withText ? 'EVAL' : 'EVALSHA',
      withText ? script.text : script.sha,
      String(keys.length),
      ...keys,
      ...args,
    ]
    const { count, withinMs } = this.#options.replicas
    const isWaitedFor = count > 0 && step.wrote !== undefined
    this.#unanswered++
    const answer: Promise<unknown> = isWaitedFor
      ? this.client.runTogether([command, ['WAIT', String(count), String(withinMs)]], keys[0]!)
      : this.client.run(command, keys[0])
    return answer.then(
      (reply) => {
        this.#answered()
        return isWaitedFor ? this.#acknowledged(step, reply) : step.read(reply, script)
      },
      (error: unknown) => {
        this.#answered()
        if (withText || !isNoScript(error)) throw error
        return unknown?.() ?? this.#send(step, undefined, true)
      },
    )
  }

  /** A step that must not be lost in a failover counts once enough replicas have it, if the user asked for that. */
  #acknowledged<T>(step: Step<T>, replies: unknown): T {
    const [reply, acknowledged] = replies as readonly unknown[]
    const { count, withinMs } = this.#options.replicas
    const answer = step.read(reply, step.script)
    if (step.wrote?.(answer) !== true || numeric(acknowledged, step.script) >= count) return answer
    const had = acknowledged === 1 ? '1 replica has' : `${String(acknowledged)} replicas have`
    throw new Error(`${had} acknowledged it within ${withinMs} ms, and ${count} must`)
  }

  /**
   * Lets the node in first, and asks it then. Never sends the script's text: where the node does not have the script, it may
   * not vote.
   */
  async #enter<T>(
    admission: Admission,
    ttlMs: number,
    stale: Script | undefined,
    step: (script: Script) => Step<T>,
    isWanted: () => boolean,
    entries = 1,
  ): Promise<T> {
    if (entries > MOST_ENTRIES) throw new Error('does not vote: its scripts are flushed again and again')
    this.#unanswered++
    try {
      const script = await admission.enter(ttlMs, stale)
      // What it would grant now would be in the way of the next attempt.
      if (!isWanted()) throw new NotSentError('was let in to vote when the attempt was over')
      const again = (): Promise<T> => this.#enter(admission, ttlMs, script, step, isWanted, entries + 1)
      return await this.#ask(step(script), again)
    } finally {
      this.#answered()
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

  #answered(): void {
    this.#answers++
    if (--this.#unanswered === 0) this.#whenIdle?.()
  }
}
