import type { Clock } from '../../clock.ts'
import { hasMethods, property } from '../shared/shape.ts'

/** `replicated`: the server that takes writes is a member of a replica set, or a mongos in front of several. */
export type Deployment = 'alone' | 'replicated'

/**
 * For a server alone. There 8.2 acknowledges `w: 'majority', j: true` before the write is in its journal: it begins to write
 * the journal, relies on waiting for the members of its replica set, and has none. A server that is killed right then loses
 * the write. With `w: 1` it waits for its journal.
 */
export const JOURNALED = { w: 1, j: true }

/** Options for one write: whose acknowledgement makes it durable, and the session to send it in. */
export interface DurableWrite {
  readonly deployment: Deployment
  readonly inSession: { readonly session?: object }
}

export interface WriteBounds {
  /** Nothing is sent after it has aborted. */
  readonly signal?: AbortSignal
  /** The user's own. Default: a new one. */
  readonly session?: object | undefined
}

interface DriverDb {
  command(command: object, options: object): Promise<object>
  readonly client: { startSession(): { endSession(): Promise<unknown> } }
}

/** An answer of `hello`, or the question. */
interface Known {
  readonly askedMs: number
  readonly answer: Promise<Deployment>
  deployment?: Deployment
}

/** A server alone can be restarted as a member of a replica set, and no request needs to fail for that. */
const ALONE_FOR_MS = 1000

/**
 * Chooses the write concern by what the server says it is, and proves the choice by the reply to the write itself: a member of
 * a replica set, or a mongos, puts the time of the operation into each reply, and a server alone does not. So a write with
 * `w: 1` that reached a replica set after all, because the server was restarted while the write waited for a connection, is
 * not believed.
 */
export class DurableWrites {
  readonly #db: DriverDb | undefined
  readonly #clock: Clock
  #known: Known | undefined

  /** A `Db` of the driver. Of one that cannot be asked, a replica set is assumed. */
  constructor(db: unknown, clock: Clock) {
    const canAsk = hasMethods(db, 'command') && hasMethods(property(db, 'client'), 'startSession')
    this.#db = canAsk ? (db as unknown as DriverDb) : undefined
    this.#clock = clock
  }

  async send<T>(write: (options: DurableWrite) => Promise<T>, { signal, session }: WriteBounds = {}): Promise<T> {
    const db = this.#db
    if (db === undefined)
      return write({ deployment: 'replicated', inSession: session === undefined ? {} : { session } })
    try {
      const deployment = await this.#deployment(db, signal)
      signal?.throwIfAborted()
      if (session !== undefined) return await this.#send(db, deployment, session, write, signal)
      const own = db.client.startSession()
      try {
        return await this.#send(db, deployment, own, write, signal)
      } finally {
        own.endSession().catch(() => undefined)
      }
    } catch (error) {
      this.#known = undefined
      throw error
    }
  }

  async #send<T>(
    db: DriverDb,
    deployment: Deployment,
    session: object,
    write: (options: DurableWrite) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const reply = await write({ deployment, inSession: { session } })
    const isReplicated = property(session, 'operationTime') !== undefined
    // Software that only resembles MongoDB may leave the time out, so `hello` has the last word on that.
    const isOther = deployment === 'alone' ? isReplicated : !isReplicated && (await this.#ask(db, signal)) === 'alone'
    if (isOther) {
      const [before, now] = deployment === 'alone' ? ['without', 'in'] : ['in', 'without']
      throw new Error(
        `The server ran ${before} a replica set and now runs ${now} one. Whether the write lasts is unknown.`,
      )
    }
    return reply
  }

  async #deployment(db: DriverDb, signal: AbortSignal | undefined): Promise<Deployment> {
    for (;;) {
      const known = this.#known
      const isFresh =
        known?.deployment === 'replicated' || this.#clock.monotonicMs() - (known?.askedMs ?? -Infinity) < ALONE_FOR_MS
      if (known === undefined || !isFresh) return this.#ask(db, signal)
      try {
        return await known.answer
      } catch {
        // The question had the deadline of another request.
        signal?.throwIfAborted()
        if (this.#known === known) this.#known = undefined
      }
    }
  }

  #ask(db: DriverDb, signal: AbortSignal | undefined): Promise<Deployment> {
    const options = {
      readPreference: 'primary',
      promoteValues: true,
      raw: false,
      ...(signal === undefined ? {} : { signal }),
    }
    const answer = db.command({ hello: 1 }, options).then((hello) => (known.deployment = deploymentOf(hello)))
    const known: Known = { askedMs: this.#clock.monotonicMs(), answer }
    this.#known = known
    return answer
  }
}

/** A member that was not told about its set yet takes no writes. It is no server alone. */
export function deploymentOf(hello: object): Deployment {
  const isMember = typeof property(hello, 'setName') === 'string' || property(hello, 'isreplicaset') === true
  return isMember || property(hello, 'msg') === 'isdbgrid' ? 'replicated' : 'alone'
}
