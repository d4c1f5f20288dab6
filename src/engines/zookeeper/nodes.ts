import { elapsedMs, instant, type Clock, type Instant } from '../../clock.ts'
import { CODE, isCode, milliseconds, type Callback, type OpResult, type Stat, type Transaction } from './driver.ts'
import { readNote, writeNote, type Note } from './note.ts'
import type { Session } from './session.ts'

/** A node as it was read. */
export interface Sight {
  readonly stat: Stat
  /** Undefined if other software wrote it. */
  readonly note: Note | undefined
}

export const EMPTY = Buffer.alloc(0)
/** The clocks of two machines drift apart by a millisecond or so in this time. */
const SERVER_TIME_MS = 60_000

/** Single operations on nodes. */
export class Nodes {
  readonly #session: Session
  readonly #root: string
  readonly #clock: Clock
  #serverTime: { readonly ms: number; readonly at: Instant } | undefined

  constructor(session: Session, { root, clock }: { root: string; clock: Clock }) {
    this.#session = session
    this.#root = root
    this.#clock = clock
  }

  async stat(path: string, withinMs: number): Promise<Stat | null> {
    const [stat] = await this.#session.ask<[stat: Stat | null]>(withinMs, (client, done) => client.exists(path, done))
    return stat
  }

  /** Undefined if the node is not there. */
  children(path: string, withinMs: number): Promise<readonly string[] | undefined> {
    return unlessGone(async () => {
      const [names] = await this.#session.ask<[names: readonly string[], stat: Stat]>(withinMs, (client, done) =>
        client.getChildren(path, done),
      )
      return names
    })
  }

  /** Undefined if the node is not there. `ageMs`: since it was last written, by the leader's wall clock. */
  async read(path: string, withinMs: number): Promise<(Sight & { readonly ageMs: number }) | undefined> {
    const nowMs = await this.#serverNowMs(withinMs)
    return unlessGone(async () => {
      const [data, stat] = await this.#session.ask<[data: Buffer | undefined, stat: Stat]>(withinMs, (client, done) =>
        client.getData(path, done),
      )
      return { stat, note: readNote(data), ageMs: Math.max(nowMs - milliseconds(stat.mtime), 0) }
    })
  }

  /** As it is now; `changed` is called once, when it is next written or removed. Undefined if the node is not there. */
  watch(path: string, changed: () => void, withinMs: number): Promise<Sight | undefined> {
    return unlessGone(async () => {
      const [data, stat] = await this.#session.watch(path, changed, withinMs)
      return { stat, note: readNote(data) }
    })
  }

  /** Writes on nodes, all or none: that proves that they are there, by the leader's word. */
  async write(notes: readonly (readonly [path: string, note: Note])[], withinMs: number): Promise<void> {
    const results = await this.#session.commit(withinMs, (transaction) => {
      for (const [path, note] of notes) transaction.setData(path, writeNote(note))
    })
    const stat = results.at(-1)?.stat
    if (stat !== undefined) this.learn(stat)
  }

  commit(withinMs: number, add: (transaction: Transaction) => void): Promise<readonly OpResult[]> {
    return this.#session.commit(withinMs, add)
  }

  /** False if it is not there, has nodes below it, or (`version`) was written since. */
  async remove(path: string, withinMs: number, version = -1): Promise<boolean> {
    try {
      await this.#session.ask(withinMs, (client, done: Callback<[]>) => client.remove(path, version, done))
      return true
    } catch (error) {
      if (isCode(error, CODE.noNode, CODE.notEmpty, CODE.badVersion)) return false
      throw error
    }
  }

  /** Something was written just now. */
  learn({ mtime }: Stat): void {
    this.#serverTime = { ms: milliseconds(mtime), at: instant(this.#clock) }
  }

  /** The leader's wall clock, which stamps the nodes. Nobody's validity rests on it. */
  async #serverNowMs(withinMs: number): Promise<number> {
    const known = this.#serverTime
    if (known !== undefined && elapsedMs(this.#clock, known.at) < SERVER_TIME_MS) {
      return known.ms + this.#clock.monotonicMs() - known.at.monotonicMs
    }
    try {
      const [stat] = await this.#session.ask<[stat: Stat]>(withinMs, (client, done) =>
        client.setData(this.#root, EMPTY, done),
      )
      this.learn(stat)
      return milliseconds(stat.mtime)
    } catch (error) {
      // Not ours to write on; then our own clock must do.
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
