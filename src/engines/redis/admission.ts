import type { RedisClient } from './client.ts'
import { STAMP_KEY } from './keys.ts'
import type { Script } from './scripts.ts'

/** The node restarted and may have forgotten leases that are not over yet: it does not vote until they must be. */
export class SittingOutError extends Error {
  readonly remainingMs: number

  constructor(remainingMs: number) {
    super(`restarted and may have forgotten leases: sits out for ${Math.ceil(remainingMs / 1000)} s more`)
    this.name = 'SittingOutError'
    this.remainingMs = remainingMs
  }
}

/**
 * Keeps a node that restarted from voting until every lease it may have forgotten is over, at no cost for the others: a
 * script cache does not survive a restart, so the acquire script is only ever called by its hash, and whoever hears that
 * the node does not know it loads it only when the node has been up for long enough. Until then nobody gets a vote.
 */
export class Admission {
  readonly #client: RedisClient
  readonly #script: Script
  readonly #sitOutMs: number

  constructor(client: RedisClient, acquire: Script, sitOutMs: number) {
    this.#client = client
    this.#script = acquire
    this.#sitOutMs = sitOutMs
  }

  /** Loads the script if the node may vote; rejects with `SittingOutError` if not yet. */
  async load(): Promise<void> {
    const { runId, uptimeMs } = await this.#run()
    // With a stamp of this very run it was let in since it started, and its scripts were flushed after that.
    if (uptimeMs < this.#sitOutMs && (await this.#client.run(['GET', STAMP_KEY], STAMP_KEY)) !== runId) {
      throw new SittingOutError(this.#sitOutMs - uptimeMs)
    }
    await this.waive()
  }

  /**
   * Loads the script whatever the uptime; the caller knows that nothing was forgotten. If the node restarted between
   * the caller's look at it and the load, the new run has a script it must not have yet: its scripts are flushed, which
   * other users of the node notice as one more NOSCRIPT.
   */
  async waive(): Promise<void> {
    const before = await this.#run()
    await this.#client.run(['SCRIPT', 'LOAD', this.#script.text], STAMP_KEY)
    const after = await this.#run()
    if (after.runId !== before.runId) {
      await this.#client.run(['SCRIPT', 'FLUSH'], STAMP_KEY)
      throw new SittingOutError(this.#sitOutMs - after.uptimeMs)
    }
    await this.#client.run(['SET', STAMP_KEY, after.runId], STAMP_KEY)
  }

  /** Has the node ever been in use, as far as it remembers? Tells a new deployment from one that lost its memory. */
  async stamped(): Promise<boolean> {
    return Number(await this.#client.run(['EXISTS', STAMP_KEY], STAMP_KEY)) === 1
  }

  /** With this persistence a node forgets nothing when it restarts. */
  async forgetsNothing(): Promise<boolean> {
    const reply = await this.#client.run(['CONFIG', 'GET', '*append*'], STAMP_KEY)
    if (!Array.isArray(reply)) return false
    const is = (name: string, value: string): boolean => reply[reply.indexOf(name) + 1] === value
    return is('appendonly', 'yes') && is('appendfsync', 'always') && is('no-appendfsync-on-rewrite', 'no')
  }

  async #run(): Promise<{ runId: string; uptimeMs: number }> {
    const info = String(await this.#client.run(['INFO', 'server'], STAMP_KEY))
    const runId = /^run_id:(\w+)/m.exec(info)?.[1]
    // Negative after the node's clock was set back.
    const uptime = /^uptime_in_seconds:(-?\d+)/m.exec(info)?.[1]
    if (runId === undefined || uptime === undefined)
      throw new Error('INFO server tells neither run_id nor uptime_in_seconds')
    return { runId, uptimeMs: Math.max(0, Number(uptime) * 1000) }
  }
}
