import type { Clock } from '../../clock.ts'
import type { Deadlines } from '../../deadlines.ts'
import { ZnodeCleanup } from './cleanup.ts'
import type { ZookeeperAcl, ZookeeperClient } from './client.ts'
import { ZookeeperSession } from './session.ts'
import { ZookeeperSteps } from './steps.ts'
import { Znodes } from './znodes.ts'

/** For the first connection, several servers may have to be asked. Later ones have as much time as an answer. */
const CONNECT_MS = 5000

/** One session, and what lives as long as it does. */
export class SessionScope {
  readonly session: ZookeeperSession
  readonly znodes: Znodes
  readonly steps: ZookeeperSteps
  readonly cleanup: ZnodeCleanup
  #prepared: Promise<readonly string[]> | undefined

  constructor(
    client: ZookeeperClient,
    plan: {
      root: string
      acl: readonly ZookeeperAcl[]
      sessionMs: number
      withinMs: number
      clock: Clock
      deadlines: Deadlines
    },
  ) {
    this.session = new ZookeeperSession(client, plan.sessionMs, plan.clock, plan.deadlines)
    this.znodes = new Znodes(this.session, plan)
    this.steps = new ZookeeperSteps(this.znodes, plan)
    this.cleanup = new ZnodeCleanup(this.session, this.steps, plan.withinMs)
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
