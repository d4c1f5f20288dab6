import type { Random } from '../../../random.ts'
import type { RedisClient } from '../client.ts'
import { lacksRight } from '../drivers/server-errors.ts'
import { STAMP_KEY } from '../keys.ts'
import { replayOf } from './replay.ts'
import { epochScript, type Script } from '../scripts.ts'
import { LEAST_SIT_OUT_MS, UPTIME_GRAIN_MS, type WhyOut } from './standing.ts'
import {
  admitCommand,
  lookCommand,
  markCommand,
  readLook,
  runOf,
  touchCommand,
  type SitOutLevel,
  type NodeLook,
} from './stamp.ts'

/** The node may have forgotten leases that are not over yet: it does not vote until they must be over. */
export class SittingOutError extends Error {
  readonly remainingMs: number

  /** `runs`: its time has begun, because a client has asked it for a lease. */
  constructor(remainingMs: number, why: WhyOut, runs = true) {
    const rest = runs ? 'more' : 'from the next attempt on'
    super(`${inWords(why)}: sits out for ${Math.ceil(remainingMs / 1000)} s ${rest}`)
    this.name = 'SittingOutError'
    this.remainingMs = remainingMs
  }
}

function inWords(why: WhyOut): string {
  switch (why.kind) {
    case 'restarted':
      return 'restarted and may have forgotten leases'
    case 'unknown':
      return 'remembers nothing of this quorum (it is new, restarted empty, or stands in for another server)'
    case 'another maxTtl': {
      const orLess = why.sitOutMs <= LEAST_SIT_OUT_MS + UPTIME_GRAIN_MS ? ' or less' : ''
      const other = `${(why.sitOutMs - UPTIME_GRAIN_MS) / 1000} s${orLess}`
      return `let in for clients with another maxTtl (${other}); clients of a quorum need the same`
    }
  }
}

/** An acquire script that was let in: its text contains the epoch, so only clients that read the stamp know its hash. */
interface Admitted {
  /** As it stands in the stamp: run and epoch. */
  readonly value: string
  readonly script: Script
}

/** A node that is ready to be let in: only the epoch is not published yet. */
export interface Prepared {
  readonly look: NodeLook
  readonly loaded: Admitted
  readonly isDurable: boolean
}

/**
 * Lets one node vote. Its acquire script is called by its hash only, and the hash is made from a random epoch. A client that
 * lets the node in loads the script under an epoch that nobody else knows, and then publishes the epoch in the node's stamp, in
 * a step that compares the run: so nobody knows a script that was loaded into another run than the one that was looked at.
 */
export class Admission {
  readonly #client: RedisClient
  readonly #prefix: string
  readonly #sitOutMs: number
  readonly #random: Random
  #admitted: Admitted | undefined
  /** Published in this run, and no longer known to the node: its scripts were flushed. It must never be loaded again. */
  #flushed: string | undefined
  /** Loaded, but not published yet. */
  #loaded: Admitted | undefined
  #isTouching = false
  #isBarred = false
  #enter: (ttlMs: number) => Promise<Script> = () => Promise.reject(new Error('belongs to no quorum yet'))
  #inTime: <T>(work: Promise<T>) => Promise<T> = (work) => work

  constructor(client: RedisClient, prefix: string, sitOutMs: number, random: Random) {
    this.#client = client
    this.#prefix = prefix
    this.#sitOutMs = sitOutMs
    this.#random = random
  }

  /** `enter` decides whether the node may vote, which depends on the other nodes, too. */
  join(enter: (ttlMs: number) => Promise<Script>, inTime: <T>(work: Promise<T>) => Promise<T>): void {
    this.#enter = enter
    this.#inTime = inTime
  }

  /**
   * The script to acquire by, for a lease of this ttl; rejects with `SittingOutError` if the node may not vote yet. `stale`:
   * one that the node does not know, because it restarted or its scripts were flushed.
   */
  enter(ttlMs: number, stale?: Script): Promise<Script> {
    if (stale !== undefined && stale === this.#admitted?.script) {
      this.#flushed = this.#admitted.value
      this.#admitted = undefined
    }
    return this.#enter(ttlMs)
  }

  /** The script to acquire by; undefined while it is not known, or not to be used. */
  get script(): Script | undefined {
    return this.#isBarred ? undefined : this.#admitted?.script
  }

  /** Another client leads to the same server: every vote is to be decided anew until that has changed. */
  bar(isBarred: boolean): void {
    this.#isBarred = isBarred
  }

  /** Changes nothing on the node. Every caller looks anew: the look of an earlier caller may be too old. */
  async look(): Promise<NodeLook> {
    return readLook(await this.#onStamp(lookCommand), this.#sitOutMs)
  }

  /** Uses the epoch that a look has found, if the node still has its script as far as we know. */
  use(look: NodeLook): Script | undefined {
    if (look.isAdmitted && look.epoch !== this.#flushed) return this.#use(look.epoch)
    // It restarted, and we did not notice.
    if (this.#admitted !== undefined && runOf(this.#admitted.value) !== look.run) this.#admitted = undefined
    return undefined
  }

  /** Has the node sit out from now on, unless it does already. */
  async sitOut({ run, since }: NodeLook, level: SitOutLevel, isWhole: boolean): Promise<void> {
    if (since === undefined || since.level < level) await this.#onStamp(markCommand(run, level, isWhole))
  }

  /** Only this client knows of it yet, so it may stay without consequence. */
  async prepare(look: NodeLook): Promise<Prepared> {
    // Before the load: where the stamp cannot be written, scripts would pile up.
    await this.#onStamp(markCommand(look.run))
    return { look, loaded: await this.#load(look.run), isDurable: await this.forgetsNothing() }
  }

  /**
   * Lets the node vote in the run that was looked at. Undefined if it is in another run by now, or if another client has marked
   * it more surely.
   * `overrules`: what others may have said in the meantime about whether it must sit out. `goesOn`: with the data it had when
   * it was let in before.
   */
  async admit(
    { look, loaded, isDurable }: Prepared,
    { overrules, goesOn }: { readonly overrules: SitOutLevel; readonly goesOn: boolean },
  ): Promise<Script | undefined> {
    const change = { value: loaded.value, isDurable, overrules, goesOn }
    const reply = await this.#onStamp(admitCommand(look, this.#sitOutMs, change))
    const [outcome, published] = Array.isArray(reply) ? (reply as unknown[]).map(String) : []
    if (outcome === 'another epoch' && runOf(published!) === look.run) return this.#use(published!)
    if (outcome === 'admitted' || outcome === 'another run') this.#loaded = undefined
    if (outcome !== 'admitted') return undefined
    this.#admitted = loaded
    return loaded.script
  }

  /** Writes into the stamp that the node is in use, and returns whether that arrived. Never rejects: a failure has no consequence. */
  async touch(): Promise<boolean> {
    if (this.#admitted === undefined || this.#isTouching) return false
    this.#isTouching = true
    try {
      const { value } = this.#admitted
      await this.#client.run(touchCommand(value, this.#sitOutMs, await this.forgetsNothing()), STAMP_KEY)
      return true
    } catch {
      return false
    } finally {
      this.#isTouching = false
    }
  }

  /** Not being allowed to ask is no reason to believe it. */
  async forgetsNothing(): Promise<boolean> {
    const reply = await this.#run(['CONFIG', 'GET', '*append*']).catch(() => undefined)
    if (!Array.isArray(reply)) return false
    const is = (name: string, value: string): boolean => reply[reply.indexOf(name) + 1] === value
    const isWritten = is('appendonly', 'yes') && is('appendfsync', 'always') && is('no-appendfsync-on-rewrite', 'no')
    return isWritten && (await replayOf((command) => this.#run(command), this.#prefix)) === 'whole'
  }

  async #load(run: string): Promise<Admitted> {
    // Nobody else knows it, so it is as good as a new one. A load that was not confirmed is not: it may still be under way, and
    // arrive after a restart, when other clients have learnt the epoch.
    if (this.#loaded !== undefined && runOf(this.#loaded.value) === run) return this.#loaded
    const epoch = this.#random.id()
    const loaded = { value: `${run} ${epoch}`, script: epochScript(epoch) }
    await this.#onStamp(['SCRIPT', 'LOAD', loaded.script.text])
    this.#loaded = loaded
    return loaded
  }

  #use(value: string): Script {
    if (this.#admitted?.value !== value) {
      this.#admitted = { value, script: epochScript(value.slice(runOf(value).length + 1)) }
    }
    return this.#admitted.script
  }

  /** A step without which the node is not let in. */
  async #onStamp(command: readonly string[]): Promise<unknown> {
    return this.#run(command).catch((error: unknown) => {
      throw explained(error)
    })
  }

  #run(command: readonly string[]): Promise<unknown> {
    return this.#inTime(this.#client.run(command, STAMP_KEY))
  }
}

/** The error must say that it is about letting the node in, and not only which command was refused. */
function explained(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const isDenied = lacksRight(error)
  if (!isDenied && !/\b(OOM|READONLY|WRONGTYPE|MISCONF|NOREPLICAS)\b/.test(error.message)) return error
  const remedy = isDenied
    ? `; allow this user ~${STAMP_KEY} +info +time +hget +hgetall +hset +del +eval +script|load`
    : ''
  const message = `does not vote: its key ${STAMP_KEY}, which says whether it may, cannot be used: ${error.message}${remedy}`
  return new Error(message, { cause: error })
}
