import type { LeaseRef } from '../../engine.ts'
import { Admission } from './admission.ts'
import type { RedisClient } from './client.ts'
import { isNoScript } from './drivers/server-errors.ts'
import { resourceKeys, type ResourceKeys } from './keys.ts'
import { acquireScript, CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE, type Script } from './scripts.ts'
import type { NodeAnswer } from './votes.ts'

export interface NodeOptions {
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

/**
 * Drivers keep what a frozen server has not answered, for ever and in memory. From this many on a node gets no new
 * leases to vote on; releases may be twice as many, because each belongs to a lease that was voted on.
 */
const MOST_UNANSWERED = 1000

/** A client's clock may be wrong by this much before a node stops following it when it numbers a grant; in µs. */
const CLAMP_US = 2_000_000

/** One Redis master: the protocol's steps on it, and their answers in words. */
export class RedisNode {
  readonly client: RedisClient
  readonly label: string
  /** Its last command failed: when nodes are asked one by one, it is asked last. */
  suspect = false
  readonly admission: Admission
  readonly #options: NodeOptions
  readonly #acquire: Script
  #unanswered = 0

  constructor(client: RedisClient, label: string, options: NodeOptions) {
    this.client = client
    this.label = label
    this.#options = options
    this.#acquire = acquireScript(options.sitOutMs)
    this.admission = new Admission(client, this.#acquire, options.sitOutMs)
  }

  async acquire(keys: KeySet, owner: string, ttlMs: number, proposal: number): Promise<Granted | Refused> {
    const args = [owner, String(ttlMs), String(proposal), String(CLAMP_US), this.#fenceTtl(ttlMs)]
    const reply = await this.#write(this.#acquire, keys.pairs, args)
    const [kind, first, second, third] = fields(reply, this.#acquire)
    return grantOrRefusal(kind, first, second, third, this.#acquire)
  }

  async handOver(
    keys: KeySet,
    owner: string,
    next: { owner: string; ttlMs: number },
    proposal: number,
  ): Promise<Granted | Refused> {
    const ttl = String(next.ttlMs)
    const args = [owner, next.owner, ttl, String(proposal), String(CLAMP_US), this.#fenceTtl(next.ttlMs)]
    const [kind, first, second, third] = fields(await this.#write(HAND_OVER, keys.pairs, args), HAND_OVER)
    return grantOrRefusal(kind, first, second, third, HAND_OVER)
  }

  async confirm(keys: KeySet, owner: string, token: number, ttlMs: number): Promise<NodeAnswer> {
    const args = [owner, String(token), this.#fenceTtl(ttlMs)]
    const [kind, fence] = fields(await this.#write(CONFIRM, keys.pairs, args), CONFIRM)
    if (kind === 1) return { kind: 'confirmed', token }
    if (kind === 2) return { kind: 'higher', fence: numeric(fence, CONFIRM) }
    return { kind: 'out' }
  }

  /** For each lease: is it still its owner's here? On a Cluster the leases must share a hash slot. */
  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const pairs = leases.flatMap(({ resources }) => this.keys(resources).pairs)
    const longestMs = Math.max(...leases.map(({ ttlMs }) => ttlMs))
    const args = leases.flatMap(({ resources, owner, ttlMs, token }) => [
      String(resources.length),
      owner,
      String(ttlMs),
      String(token),
    ])
    const reply = await this.#write(EXTEND, pairs, [this.#fenceTtl(longestMs), ...args])
    if (!Array.isArray(reply) || reply.length !== leases.length) throw nonsense(reply, EXTEND)
    return reply.map((ours) => Number(ours) === 1)
  }

  async release(keys: KeySet, owner: string, token: bigint): Promise<{ ours: boolean; told: number }> {
    const publish = this.client.cluster ? 'spublish' : 'publish'
    const args = [owner, String(token), this.#fenceTtl(0), publish, ...keys.channels]
    const [ours, told] = fields(await this.#run(RELEASE, keys.pairs, args), RELEASE)
    return { ours: ours === 1, told: numeric(told, RELEASE) }
  }

  async inspect(keys: KeySet): Promise<readonly { owner: string; remainingMs: number | undefined; fence: number }[]> {
    const reply = await this.#run(INSPECT, keys.pairs, [])
    if (!Array.isArray(reply)) throw nonsense(reply, INSPECT)
    return reply.map((row: unknown) => {
      const [owner, left, fence] = fields(row, INSPECT)
      const remainingMs = numeric(left, INSPECT)
      return {
        owner: String(owner),
        remainingMs: remainingMs < 0 ? undefined : remainingMs,
        fence: numeric(fence, INSPECT),
      }
    })
  }

  keys(resources: readonly string[]): KeySet {
    return keySet(this.#options.prefix, resources)
  }

  /** The counter outlives any lease it was raised for. */
  #fenceTtl(ttlMs: number): string {
    return String(this.#options.fenceTtlMs + ttlMs)
  }

  /** A step that must not be lost in a failover, if the user asked for that. */
  async #write(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const { count, withinMs } = this.#options.replicas
    if (this.#unanswered >= MOST_UNANSWERED) throw new NotSentError(this.#unanswered)
    if (count === 0) return this.#run(script, keys, args)
    const wait = ['WAIT', String(count), String(withinMs)]
    const [reply, acknowledged] = await this.#cached(script, keys, args, (command) =>
      this.client.runTogether([command, wait], keys[0]!),
    )
    if (numeric(acknowledged, script) >= count) return reply
    throw new Error(`only ${String(acknowledged)} of ${count} replicas acknowledged within ${withinMs} ms`)
  }

  #run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.#cached(script, keys, args, (command) => this.client.run(command, keys[0]))
  }

  /** By its hash; with its text only where the server does not know it: new, restarted, failed over, or flushed. */
  async #cached<T>(
    script: Script,
    keys: readonly string[],
    args: readonly string[],
    send: (command: readonly string[]) => Promise<T>,
  ): Promise<T> {
    if (this.#unanswered >= 2 * MOST_UNANSWERED) throw new NotSentError(this.#unanswered)
    const rest = [String(keys.length), ...keys, ...args]
    this.#unanswered++
    try {
      return await send(['EVALSHA', script.sha, ...rest])
    } catch (error) {
      if (!isNoScript(error)) throw error
      if (script !== this.#acquire || this.#options.sitOutMs === 0) return await send(['EVAL', script.text, ...rest])
      await this.admission.load()
      return await send(['EVALSHA', script.sha, ...rest])
    } finally {
      this.#unanswered--
    }
  }
}

/** The keys of a lease's resources, as the scripts take them. */
export interface KeySet {
  /** L and F of each resource, in turn. */
  readonly pairs: readonly string[]
  readonly channels: readonly string[]
}

export function keySet(prefix: string, resources: readonly string[]): KeySet {
  const all: ResourceKeys[] = resources.map((resource) => resourceKeys(prefix, resource))
  return { pairs: all.flatMap(({ lock, fence }) => [lock, fence]), channels: all.map(({ freed }) => freed) }
}

function grantOrRefusal(
  kind: unknown,
  fence: unknown,
  holder: unknown,
  left: unknown,
  script: Script,
): Granted | Refused {
  if (kind === 1) return { kind: 'granted', fence: numeric(fence, script) }
  if (kind !== 0) throw nonsense([kind, fence, holder, left], script)
  const remainingMs = numeric(left, script)
  return {
    kind: 'refused',
    fence: numeric(fence, script),
    holder: String(holder),
    remainingMs: remainingMs < 0 ? undefined : remainingMs,
  }
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
