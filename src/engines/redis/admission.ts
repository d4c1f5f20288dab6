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
    const run = await this.#run()
    // With a stamp of this very run it was let in since it started, and its scripts were flushed after that.
    if (run.uptimeMs < this.#sitOutMs && (await this.#client.run(['GET', STAMP_KEY], STAMP_KEY)) !== run.id) {
      throw new SittingOutError(this.#sitOutMs - run.uptimeMs)
    }
    await this.#admit(run)
  }

  /** Loads the script if this node sits out, but was in use before it restarted and has forgotten nothing. True if so. */
  async loadDurable(): Promise<boolean> {
    const run = await this.#run()
    // Without a stamp it has not kept what it should have: the disk may be new.
    if ((await this.#isLoaded()) || !(await this.#isStamped()) || !(await this.#forgetsNothing())) return false
    await this.#admit(run)
    return true
  }

  /** Loads the script on a node of a new deployment. */
  async loadNew(): Promise<void> {
    await this.#admit(await this.#run())
  }

  /** Has the node ever been in use, as far as it remembers? Tells a new deployment from one that lost its memory. */
  async inUse(): Promise<boolean> {
    return (await this.#isStamped()) || (await this.#isLoaded())
  }

  async #isStamped(): Promise<boolean> {
    return Number(await this.#client.run(['EXISTS', STAMP_KEY], STAMP_KEY)) === 1
  }

  async #isLoaded(): Promise<boolean> {
    const known = await this.#client.run(['SCRIPT', 'EXISTS', this.#script.sha], STAMP_KEY)
    return Array.isArray(known) && Number(known[0]) === 1
  }

  /**
   * If the node restarted between the look at it and the load, or may have, the new run has a script that it must not
   * have yet: its scripts are flushed, which other users of the node notice as one more NOSCRIPT.
   */
  async #admit(looked: Run): Promise<void> {
    await this.#client.run(['SCRIPT', 'LOAD', this.#script.text], STAMP_KEY)
    try {
      const now = await this.#run()
      if (now.id !== looked.id) throw new SittingOutError(this.#sitOutMs - now.uptimeMs)
      await this.#client.run(['SET', STAMP_KEY, now.id], STAMP_KEY)
    } catch (error) {
      await this.#client.run(['SCRIPT', 'FLUSH'], STAMP_KEY)
      throw error
    }
  }

  async #forgetsNothing(): Promise<boolean> {
    const reply = await this.#client.run(['CONFIG', 'GET', '*append*'], STAMP_KEY)
    if (!Array.isArray(reply)) return false
    const is = (name: string, value: string): boolean => reply[reply.indexOf(name) + 1] === value
    return is('appendonly', 'yes') && is('appendfsync', 'always') && is('no-appendfsync-on-rewrite', 'no')
  }

  async #run(): Promise<Run> {
    const info = String(await this.#client.run(['INFO', 'server'], STAMP_KEY))
    const id = /^run_id:(\w+)/m.exec(info)?.[1]
    // Negative after the node's clock was set back.
    const uptime = /^uptime_in_seconds:(-?\d+)/m.exec(info)?.[1]
    if (id === undefined || uptime === undefined)
      throw new Error('INFO server tells neither run_id nor uptime_in_seconds')
    return { id, uptimeMs: Math.max(0, Number(uptime) * 1000) }
  }
}

/** One life of a server, from start to end. */
interface Run {
  readonly id: string
  readonly uptimeMs: number
}
