import { elapsedMs, instant, type Clock, type Instant } from '../../clock.ts'
import { milliseconds, type Callback, type OpResult, type ZnodeStat, type ZookeeperTransaction } from './client.ts'
import { CODE, isCode } from './errors.ts'
import type { ZookeeperSession } from './session.ts'
import { decodeData, encodeData, type ZnodeData } from './znode-data.ts'

/** A znode as it was read. */
export interface FoundZnode {
  readonly stat: ZnodeStat
  /** Undefined if other software wrote it. */
  readonly data: ZnodeData | undefined
}

export const EMPTY: Buffer = Buffer.alloc(0)
/** For this long the leader's time is computed from our clock: two clocks drift apart by about a millisecond in this time. */
const SERVER_TIME_MS = 60_000

/** Single operations on znodes. */
export class Znodes {
  readonly #session: ZookeeperSession
  readonly #root: string
  readonly #clock: Clock
  #serverTime: { readonly ms: number; readonly at: Instant } | undefined

  constructor(session: ZookeeperSession, { root, clock }: { root: string; clock: Clock }) {
    this.#session = session
    this.#root = root
    this.#clock = clock
  }

  async stat(path: string, withinMs: number): Promise<ZnodeStat | null> {
    const [stat] = await this.#session.ask<[stat: ZnodeStat | null]>(withinMs, (client, done) =>
      client.exists(path, done),
    )
    return stat
  }

  /** Returns undefined if the znode does not exist. */
  children(path: string, withinMs: number): Promise<readonly string[] | undefined> {
    return unlessGone(async () => {
      const [names] = await this.#session.ask<[names: readonly string[], stat: ZnodeStat]>(withinMs, (client, done) =>
        client.getChildren(path, done),
      )
      return names
    })
  }

  /** Returns undefined if the znode does not exist. `ageMs`: the time since it was last written, by the leader's wall clock. */
  async read(path: string, withinMs: number): Promise<(FoundZnode & { readonly ageMs: number }) | undefined> {
    const nowMs = await this.#serverNowMs(withinMs)
    return unlessGone(async () => {
      const [data, stat] = await this.#session.ask<[data: Buffer | undefined, stat: ZnodeStat]>(
        withinMs,
        (client, done) => client.getData(path, done),
      )
      return { stat, data: decodeData(data), ageMs: Math.max(nowMs - milliseconds(stat.mtime), 0) }
    })
  }

  /** Returns how long ago the znode was made, by the leader's wall clock, and undefined if it does not exist. */
  async madeAgoMs(path: string, withinMs: number): Promise<number | undefined> {
    const nowMs = await this.#serverNowMs(withinMs)
    const stat = await this.stat(path, withinMs)
    return stat === null ? undefined : Math.max(nowMs - milliseconds(stat.ctime), 0)
  }

  /** Reads a znode, and calls `changed` once, when it is next written or removed. Returns undefined if it does not exist. */
  watch(path: string, changed: () => void, withinMs: number): Promise<FoundZnode | undefined> {
    return unlessGone(async () => {
      const [data, stat] = await this.#session.watch(path, changed, withinMs)
      return { stat, data: decodeData(data) }
    })
  }

  /** Writes to all of the znodes or none. That proves that they exist, because the leader confirms it. */
  async write(notes: readonly (readonly [path: string, data: ZnodeData])[], withinMs: number): Promise<void> {
    const results = await this.#session.commit(withinMs, (transaction) => {
      for (const [path, data] of notes) transaction.setData(path, encodeData(data))
    })
    const stat = results.at(-1)?.stat
    if (stat !== undefined) this.learn(stat)
  }

  commit(withinMs: number, add: (transaction: ZookeeperTransaction) => void): Promise<readonly OpResult[]> {
    return this.#session.commit(withinMs, add)
  }

  /** Returns false if the znode does not exist, has others below it, or was written since it had this `version`. */
  async remove(path: string, withinMs: number, version = -1): Promise<boolean> {
    try {
      await this.#session.ask(withinMs, (client, done: Callback<[]>) => client.remove(path, version, done))
      return true
    } catch (error) {
      if (isCode(error, CODE.noNode, CODE.notEmpty, CODE.badVersion)) return false
      throw error
    }
  }

  /** Takes the leader's time from something that was written just now. */
  learn({ mtime }: ZnodeStat): void {
    this.#serverTime = { ms: milliseconds(mtime), at: instant(this.#clock) }
  }

  /** The leader's wall clock, which stamps the znodes. No validity depends on it. */
  async #serverNowMs(withinMs: number): Promise<number> {
    const known = this.#serverTime
    if (known !== undefined && elapsedMs(this.#clock, known.at) < SERVER_TIME_MS) {
      return known.ms + this.#clock.monotonicMs() - known.at.monotonicMs
    }
    try {
      const [stat] = await this.#session.ask<[stat: ZnodeStat]>(withinMs, (client, done) =>
        client.setData(this.#root, EMPTY, done),
      )
      this.learn(stat)
      return milliseconds(stat.mtime)
    } catch (error) {
      // We are not permitted to write there, so our own clock has to do.
      if (isCode(error, CODE.noAuth, CODE.noNode)) return this.#clock.wallMs()
      throw error
    }
  }
}

async function unlessGone<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    if (isCode(error, CODE.noNode)) return undefined
    throw error
  }
}
