import type { Clock } from '../../clock.ts'
import type { Deadlines } from '../../deadlines.ts'
import type { Acl, Client } from './driver.ts'
import { Line } from './line.ts'
import { Nodes } from './nodes.ts'
import { Remains } from './remains.ts'
import { Session } from './session.ts'

/** The first connection may need several servers to be asked; later ones are waited for no longer than an answer. */
const CONNECT_MS = 5000

/** A session and what we do in it. */
export class Seat {
  readonly session: Session
  readonly nodes: Nodes
  readonly line: Line
  readonly remains: Remains
  #prepared: Promise<readonly string[]> | undefined

  constructor(
    client: Client,
    plan: {
      root: string
      acl: readonly Acl[]
      sessionMs: number
      withinMs: number
      clock: Clock
      deadlines: Deadlines
    },
  ) {
    this.session = new Session(client, plan.sessionMs, plan.clock, plan.deadlines)
    this.nodes = new Nodes(this.session, plan)
    this.line = new Line(this.nodes, plan)
    this.remains = new Remains(this.session, this.line, plan.withinMs)
  }

  /** Resolves when there is a connection, and the folder of all folders; with the nodes that were made for it. */
  async ready(withinMs: number): Promise<readonly string[]> {
    if (this.#prepared === undefined) {
      await this.session.ready(Math.max(withinMs, CONNECT_MS))
      this.#prepared ??= this.line.prepare(withinMs).catch((error: unknown) => {
        this.#prepared = undefined
        throw error
      })
    }
    return this.#prepared
  }

  /** Someone has removed the folder of all folders. */
  async prepareAgain(withinMs: number): Promise<void> {
    this.#prepared = undefined
    await this.ready(withinMs)
  }
}
