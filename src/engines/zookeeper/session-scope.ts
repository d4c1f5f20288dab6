import type { Clock } from '../../clock.ts'
import type { Deadlines } from '../../deadlines.ts'
import { ZnodeCleanup } from './cleanup.ts'
import type { ZookeeperPlan } from './engine.ts'
import { ZookeeperHoldings } from './holdings.ts'
import { ZookeeperSession } from './session.ts'
import { ZookeeperSteps } from './steps.ts'
import { Znodes } from './znodes.ts'

/**
 * A session lasts twice the longest ttl. When a lease is proved, the leader has heard of us within the last five twelfths of
 * a session: a sixth between two heartbeats, and a quarter until they surely reach it (see `Touches`). So more than half of
 * the session is left.
 */
export const SESSION_PER_TTL = 2

/** For the first connection, several servers may have to be asked. Later ones have as much time as an answer. */
const CONNECT_MS = 5000

/** One session, and what lives as long as it does. */
export class SessionScope {
  readonly clock: Clock
  readonly session: ZookeeperSession
  readonly znodes: Znodes
  readonly steps: ZookeeperSteps
  readonly cleanup: ZnodeCleanup
  /** Leases end with their session. */
  readonly holdings: ZookeeperHoldings
  #prepared: Promise<readonly string[]> | undefined

  constructor(plan: ZookeeperPlan, deadlines: Deadlines) {
    const { newClient, maxTtlMs, withinMs, clock } = plan
    this.clock = clock
    this.session = new ZookeeperSession(newClient(), SESSION_PER_TTL * maxTtlMs, clock, deadlines)
    this.znodes = new Znodes(this.session, plan)
    this.steps = new ZookeeperSteps(this.znodes, plan)
    this.cleanup = new ZnodeCleanup(this.session, this.steps, withinMs(maxTtlMs))
    this.holdings = new ZookeeperHoldings(this, plan, deadlines)
    this.session.onReconnected(() => {
      if (this.session.over !== undefined) this.holdings.clear()
    })
  }

  /** Resolves when there is a connection and the root folder exists. Returns the znodes that were made for it. */
  async ready(withinMs: number): Promise<readonly string[]> {
    if (this.#prepared === undefined) {
      await this.session.ready(Math.max(withinMs, CONNECT_MS))
      this.#prepared ??= this.steps.prepare(withinMs).catch((error: unknown) => {
        this.#prepared = undefined
        throw error
      })
    }
    return this.#prepared
  }

  /** For when someone has removed the root folder. */
  async prepareAgain(withinMs: number): Promise<void> {
    this.#prepared = undefined
    await this.ready(withinMs)
  }
}
