import { hasMethods, property } from '../shared/shape.ts'
import { isTaken } from './errors.ts'

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

interface DeploymentDb {
  command(command: object, options: object): Promise<object>
  readonly client: { startSession(): { endSession(): Promise<unknown> } }
}

/** An answer of `hello`, or the question. */
interface KnownDeployment {
  readonly answer: Promise<Deployment>
  deployment?: Deployment
}

/**
 * Chooses the write concern by what the server is, and proves the choice by the reply to the write itself: a member of a
 * replica set, or a mongos, puts the time of the operation into each reply, and a server alone does not. So a write with `w: 1`
 * that reached a replica set after all, because the server was restarted meanwhile, is not believed.
 *
 * The choice itself may be wrong without harm, so it need not cost a round trip. The driver watches its servers and knows what
 * they are. The server is asked (`hello`) while the driver does not know it, after a request that failed, and where an earlier
 * answer and the driver disagree.
 */
export class DurableWrites {
  readonly #db: DeploymentDb | undefined
  #known: KnownDeployment | undefined
  /** A request has failed since the server was last asked. */
  #isDoubted = false

  /** A `Db` of the driver. Of one that cannot be asked, a replica set is assumed. */
  constructor(db: unknown) {
    const canAsk = hasMethods(db, 'command') && hasMethods(property(db, 'client'), 'startSession')
    this.#db = canAsk ? (db as unknown as DeploymentDb) : undefined
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
      // A refusal is an answer like any other.
      if (!isTaken(error)) {
        this.#known = undefined
        this.#isDoubted = true
      }
      throw error
    }
  }

  async #send<T>(
    db: DeploymentDb,
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

  async #deployment(db: DeploymentDb, signal: AbortSignal | undefined): Promise<Deployment> {
    for (;;) {
      const known = this.#known
      const seen = seenByDriver(db)
      if (known === undefined) {
        return this.#isDoubted || seen === undefined || seen === 'away' ? this.#ask(db, signal) : seen
      }
      // A server alone that was away may have come back as a member of a replica set.
      const isDenied = known.deployment === 'alone' ? seen === 'replicated' || seen === 'away' : seen === 'alone'
      if (known.deployment !== undefined && isDenied) return this.#ask(db, signal)
      try {
        return await known.answer
      } catch {
        // The question had the deadline of another request.
        signal?.throwIfAborted()
        if (this.#known === known) this.#known = undefined
      }
    }
  }

  #ask(db: DeploymentDb, signal: AbortSignal | undefined): Promise<Deployment> {
    const options = {
      readPreference: 'primary',
      promoteValues: true,
      raw: false,
      ...(signal === undefined ? {} : { signal }),
    }
    const answer = db.command({ hello: 1 }, options).then((hello) => {
      this.#isDoubted = false
      return (known.deployment = deploymentOf(hello))
    })
    const known: KnownDeployment = { answer }
    this.#known = known
    return answer
  }
}

/** A member that was not told about its set yet takes no writes. It is no server alone. */
export function deploymentOf(hello: object): Deployment {
  const isMember = typeof property(hello, 'setName') === 'string' || property(hello, 'isreplicaset') === true
  return isMember || property(hello, 'msg') === 'isdbgrid' ? 'replicated' : 'alone'
}

/** What the driver knows from watching the servers; `away`: it reaches none. Undefined where the driver does not say. */
function seenByDriver({ client }: DeploymentDb): Deployment | 'away' | undefined {
  const servers = property(property(property(client, 'topology'), 'description'), 'servers')
  if (!(servers instanceof Map)) return undefined
  const types = [...servers.values()].map((server) => String(property(server, 'type')))
  if (types.some((type) => type.startsWith('RS') || type === 'Mongos')) return 'replicated'
  if (types.includes('Standalone')) return 'alone'
  return types.every((type) => type === 'Unknown') ? 'away' : undefined
}
