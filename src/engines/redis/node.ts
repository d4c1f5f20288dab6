import type { Clock } from '../../clock.ts'
import type { LeaseRef, RoundTrip } from '../../engine.ts'
import { Admission } from './admission.ts'
import type { RedisClient } from './client.ts'
import { isNoScript } from './drivers/server-errors.ts'
import { Flights } from './flights.ts'
import { resourceKeys, type ResourceKeys } from './keys.ts'
import { acquireScript, CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE, type Script } from './scripts.ts'
import type { NodeAnswer } from './votes.ts'

export interface NodeOptions {
  readonly clock: Clock
  readonly prefix: string
  readonly fenceTtlMs: number
  /** 0 when a node that restarted need not sit out. */
  readonly sitOutMs: number
  /** Acknowledge a write only when so many replicas have it within so many ms. */
  readonly replicas: { readonly count: number; readonly withinMs: number }
}

/** Votes of nodes that refuse tell who is in the way. */
export interface Refused {
  readonly kind: 'refused'
  readonly fence: number
  readonly holder: string
  /** Undefined for a lock without an end. */
  readonly remainingMs: number | undefined
}

export type Granted = Extract<NodeAnswer, { kind: 'granted' }>

/** The command was not even handed to the driver, so it can't take effect later. */
export class NotSentError extends Error {
  constructor(unanswered: number) {
    super(`has left ${unanswered} commands unanswered: nothing more is sent until it answers`)
    this.name = 'NotSentError'
  }
}

/** Drivers keep what a frozen server has not answered, for ever and in memory. So much of it, for so long, is enough. */
const SILENT = { commands: 1000, ms: 2000 }

/** Names of keys kept at hand: a lease needs them at least twice. */
const MOST_KEYS = 1000

/** One Redis master: the protocol's steps on it, and their answers in words. */
export class RedisNode {
  readonly client: RedisClient
  readonly label: string
  /** Its last command failed: when nodes are asked one by one, it is asked last. */
  suspect = false
  readonly admission: Admission
  readonly #options: NodeOptions
  readonly #acquire: Script
  readonly #keys = new Map<string, KeySet>()
  /** Where someone observes. */
  #flights: Flights | undefined
  #unanswered = 0
  #answers = 0
  /** When, and after how many answers, this node was last seen to answer at all. */
  #seen = { answers: -1, atMs: 0 }
  #whenIdle: (() => void) | undefined

  constructor(client: RedisClient, label: string, options: NodeOptions) {
    this.client = client
    this.label = label
    this.#options = options
    this.#acquire = acquireScript(options.sitOutMs)
    this.admission = new Admission(client, this.#acquire, options.sitOutMs)
  }

  acquire(keys: KeySet, owner: string, ttlMs: number, proposal: number): Promise<Granted | Refused> {
    const args = [owner, String(ttlMs), String(proposal), this.#fenceTtl(ttlMs)]
    return this.#write(this.#acquire, keys.pairs, args, grantOrRefusal)
  }

  handOver(
    keys: KeySet,
    owner: string,
    next: { owner: string; ttlMs: number },
    proposal: number,
  ): Promise<Granted | Refused> {
    const args = [owner, next.owner, String(next.ttlMs), String(proposal), this.#fenceTtl(next.ttlMs)]
    return this.#write(HAND_OVER, keys.pairs, args, grantOrRefusal)
  }

  confirm(keys: KeySet, owner: string, token: number, ttlMs: number): Promise<NodeAnswer> {
    const args = [owner, String(token), this.#fenceTtl(ttlMs)]
    return this.#write(CONFIRM, keys.pairs, args, (reply) => {
      const [kind, fence] = fields(reply, CONFIRM)
      if (kind === 1) return { kind: 'confirmed', token }
      return kind === 2 ? { kind: 'higher', fence: numeric(fence, CONFIRM) } : { kind: 'out' }
    })
  }

  /** For each lease: is it still its owner's here? On a Cluster the leases must share a hash slot. */
  extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const pairs = leases.flatMap(({ resources }) => this.keys(resources).pairs)
    const longestMs = Math.max(...leases.map(({ ttlMs }) => ttlMs))
    // A counter outlives its last write by fenceTtl; a lease that gets that old has it written again.
    const oldUs = Math.round(this.#options.clock.wallMs() - this.#options.fenceTtlMs / 2) * 1000
    const args = [this.#fenceTtl(longestMs), String(oldUs)]
    for (const { resources, owner, ttlMs, token } of leases) {
      args.push(String(resources.length), owner, String(ttlMs), String(token))
    }
    return this.#write(EXTEND, pairs, args, (reply) => {
      if (!Array.isArray(reply) || reply.length !== leases.length) throw nonsense(reply, EXTEND)
      return reply.map((ours) => Number(ours) === 1)
    })
  }

  /** `told`: how many clients were listening for it; with `quiet` nobody is told. */
  release(keys: KeySet, owner: string, token: bigint, quiet = false): Promise<{ ours: boolean; told: number }> {
    const publish = quiet ? '' : this.client.cluster ? 'spublish' : 'publish'
    const args = [owner, String(token), this.#fenceTtl(0), publish, ...keys.channels]
    return this.#run(RELEASE, keys.pairs, args, (reply) => {
      const told = numeric(reply, RELEASE)
      return told >= 0 ? { ours: true, told } : { ours: false, told: -1 - told }
    })
  }

  inspect(keys: KeySet): Promise<readonly Inspected[]> {
    return this.#run(INSPECT, keys.pairs, [], (reply) => {
      if (!Array.isArray(reply)) throw nonsense(reply, INSPECT)
      return reply.map((row: unknown) => {
        const [owner, left, fence] = fields(row, INSPECT)
        return { owner: String(owner), remainingMs: timeLeft(left, INSPECT), fence: numeric(fence, INSPECT) }
      })
    })
  }

  observe(silentAfterMs: number, tell: (event: RoundTrip) => void): void {
    this.#flights = new Flights(this.label, this.#options.clock, silentAfterMs, tell)
  }

  /** What is still on its way is told as silent; what a late answer leads to after that is not told of. */
  close(): void {
    this.#flights?.close()
    this.#flights = undefined
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
  #fenceTtl(ttlMs: number): string {
    return String(this.#options.fenceTtlMs + ttlMs)
  }

  /** A step that must not be lost in a failover, if the user asked for that. */
  #write<T>(script: Script, keys: readonly string[], args: readonly string[], read: Read<T>): Promise<T> {
    const { count, withinMs } = this.#options.replicas
    if (count === 0) return this.#run(script, keys, args, read)
    const wait = ['WAIT', String(count), String(withinMs)]
    const send = (command: readonly string[]): Promise<readonly unknown[]> =>
      this.client.runTogether([command, wait], keys[0]!)
    return this.#send(script, keys, args, send, ([reply, acknowledged]) => {
      const answer = read(reply, script)
      if (wroteNothing(answer) || numeric(acknowledged, script) >= count) return answer
      throw new Error(`only ${String(acknowledged)} of ${count} replicas acknowledged within ${withinMs} ms`)
    })
  }

  #run<T>(script: Script, keys: readonly string[], args: readonly string[], read: Read<T>): Promise<T> {
    return this.#send(script, keys, args, this.#alone, read)
  }

  readonly #alone = (command: readonly string[]): Promise<unknown> => this.client.run(command, command[3])

  /**
   * By the script's hash; with its text only where the server does not know it: new, restarted, failed over, or flushed.
   * Written with callbacks: every lease passes here twice a node, and each `async` in between would cost it.
   */
  #send<R, T>(
    script: Script,
    keys: readonly string[],
    args: readonly string[],
    send: (command: readonly string[]) => Promise<R>,
    read: (reply: R, script: Script) => T,
  ): Promise<T> {
    if (this.#isSilent()) return Promise.reject(new NotSentError(this.#unanswered))
    if (this.#flights === undefined) return this.#dispatch(script, keys, args, send, read)
    return this.#flights.follow(script.name, () => this.#dispatch(script, keys, args, send, read))
  }

  #dispatch<R, T>(
    script: Script,
    keys: readonly string[],
    args: readonly string[],
    send: (command: readonly string[]) => Promise<R>,
    read: (reply: R, script: Script) => T,
  ): Promise<T> {
    const command = ['EVALSHA', script.sha, String(keys.length), ...keys, ...args]
    this.#unanswered++
    return send(command).then(
      (reply) => {
        this.#answered()
        return read(reply, script)
      },
      (error: unknown) => {
        this.#answered()
        if (isNoScript(error)) return this.#withText(script, command.slice(2), send, read)
        throw error
      },
    )
  }

  async #withText<R, T>(
    script: Script,
    rest: readonly string[],
    send: (command: readonly string[]) => Promise<R>,
    read: (reply: R, script: Script) => T,
  ): Promise<T> {
    this.#unanswered++
    try {
      const mayBeLoaded = script !== this.#acquire || this.#options.sitOutMs === 0
      if (!mayBeLoaded) await this.admission.load()
      return read(await send(mayBeLoaded ? ['EVAL', script.text, ...rest] : ['EVALSHA', script.sha, ...rest]), script)
    } finally {
      this.#answered()
    }
  }

  #isSilent(): boolean {
    if (this.#unanswered < SILENT.commands) return false
    const now = this.#options.clock.monotonicMs()
    if (this.#answers === this.#seen.answers) return now - this.#seen.atMs > SILENT.ms
    this.#seen = { answers: this.#answers, atMs: now }
    return false
  }

  #answered(): void {
    this.#answers++
    if (--this.#unanswered === 0) this.#whenIdle?.()
  }
}

/** An answer to a step that changed nothing, so that there is nothing for replicas to acknowledge. */
function wroteNothing(answer: unknown): boolean {
  if (Array.isArray(answer)) return !answer.includes(true)
  return (
    typeof answer === 'object' &&
    answer !== null &&
    'kind' in answer &&
    answer.kind !== 'granted' &&
    answer.kind !== 'confirmed'
  )
}

type Read<T> = (reply: unknown, script: Script) => T

export interface Inspected {
  /** Empty when nobody holds it. */
  readonly owner: string
  readonly remainingMs: number | undefined
  readonly fence: number
}

/** The keys of a lease's resources, as the scripts take them. */
export interface KeySet {
  /** L and F of each resource, in turn. */
  readonly pairs: readonly string[]
  readonly channels: readonly string[]
}

function keySet(prefix: string, resources: readonly string[]): KeySet {
  const all: ResourceKeys[] = resources.map((resource) => resourceKeys(prefix, resource))
  return { pairs: all.flatMap(({ lock, fence }) => [lock, fence]), channels: all.map(({ freed }) => freed) }
}

function grantOrRefusal(reply: unknown, script: Script): Granted | Refused {
  if (!Array.isArray(reply)) {
    const fence = numeric(reply, script)
    if (fence <= 0) throw nonsense(reply, script)
    return { kind: 'granted', fence }
  }
  const [fence, holder, left] = reply as unknown[]
  return { kind: 'refused', fence: numeric(fence, script), holder: String(holder), remainingMs: timeLeft(left, script) }
}

function timeLeft(value: unknown, script: Script): number | undefined {
  const ms = numeric(value, script)
  return ms < 0 ? undefined : ms
}

function fields(reply: unknown, script: Script): readonly unknown[] {
  if (!Array.isArray(reply) || reply.length === 0) throw nonsense(reply, script)
  return reply
}

function numeric(value: unknown, script: Script): number {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number
  throw nonsense(value, script)
}

function nonsense(reply: unknown, script: Script): Error {
  const text = JSON.stringify(reply) ?? String(reply)
  return new Error(`the server answered the ${script.name} script with nonsense: ${text.slice(0, 120)}`)
}
