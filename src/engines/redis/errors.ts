import { inUnits } from '../../duration.ts'
import { named, QuorumError, type EngineError, type NodeFailure } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { NoAnswerError } from '../shared/in-time.ts'
import type { RedisClient } from './client.ts'
import { isPermanent, meetsNoCounter } from './drivers/server-errors.ts'
import type { RedisNode } from './node.ts'

/** The command was not even handed to the driver, so it cannot take effect later. */
export class NotSentError extends Error {
  /** Trying again cannot help. */
  readonly permanent: boolean

  constructor(message: string, permanent = false) {
    super(message)
    this.name = 'NotSentError'
    this.permanent = permanent
  }
}

/** Two clients lead to one server, whose vote would count twice. */
export class SameServerError extends NotSentError {
  constructor(other: string, run: string) {
    super(
      `is the same server as ${other} (run_id ${run}): one server must not have two votes, so neither counts; ` +
        'give every client a server of its own',
      true,
    )
    this.name = 'SameServerError'
  }
}

/** A server that has granted this lease already, of which nobody knows that it is not the server of another client. */
export class RepeatedVoteError extends Error {
  constructor() {
    super(
      'has this lease already: its client has sent the request twice, or leads to the server of another client; a second vote of one server ' +
        'does not count',
    )
    this.name = 'RepeatedVoteError'
  }
}

/** The server is a replica: its own words name neither that nor the master. */
export class ReplicaError extends Error {
  constructor(master: string | undefined, cause: Error) {
    const name = master === undefined ? 'name the master, by itself or through its sentinels' : `connect to ${master}`
    super(`is a replica${master === undefined ? '' : ` of ${master}`}: locks need the master; ${name}`, { cause })
    this.name = 'ReplicaError'
  }

  /** Asks the server for its master. Of a Cluster, and where this user may not ask, that stays unknown. */
  static async of(cause: Error, client: RedisClient): Promise<ReplicaError> {
    const info = client.cluster ? '' : await client.run(['INFO', 'replication']).catch(() => '')
    const [, host] = /^master_host:(\S+)/m.exec(String(info)) ?? []
    const [, port] = /^master_port:(\d+)/m.exec(String(info)) ?? []
    return new ReplicaError(host === undefined || port === undefined ? undefined : `${host}:${port}`, cause)
  }
}

/** With what its client says about its connection: without that, a dead server looks like a slow one. */
export function noAnswer(timeoutMs: number, client: RedisClient | undefined): NoAnswerError {
  return new NoAnswerError(timeoutMs, client?.trouble?.())
}

/** The nodes that have not answered when a caller's wait ends; the wait was no longer than a node may take to answer. */
export function silentNodes(nodes: readonly RedisNode[], waitMs: number, timeoutMs: number): NodeFailure[] {
  return nodes
    .filter(({ unanswered }) => unanswered > 0)
    .map(({ label, client }) => {
      const trouble = client.trouble?.()
      const why = trouble === undefined ? '' : ` (${trouble})`
      const cause = new Error(
        `no answer yet after ${Math.round(waitMs)} ms${why}, when the wait ended; a node has up to ${inUnits(timeoutMs)}`,
      )
      return { node: label, cause }
    })
}

/** What other software has put into a key: the server names neither the key nor the way out. */
function withRemedy(cause: Error, resources: readonly string[]): Error {
  if (resources.length > 0 && meetsNoCounter(cause)) {
    return new Error(
      `the fencing counter of ${named(resources)} is not a number: other software has written to a key ringfence:fence:*; ` +
        'keep it from these keys, and delete the one of this name',
      { cause },
    )
  }
  if (resources.length === 0 || !/\bWRONGTYPE\b/.test(cause.message)) return cause
  return new Error(
    `WRONGTYPE: a key of ${named(resources)} is not a lock: other software keeps something else there; choose another name, ` +
      "or give the locks keys of their own with the engine's option prefix",
    { cause },
  )
}

/**
 * Too few nodes did what they were asked for. Trying again makes sense unless none of them will ever do it, or the clients
 * were given by mistake.
 */
export function failureOf(
  failures: readonly NodeFailure[],
  resources: readonly string[],
  { quorum, size }: { readonly quorum: number; readonly size: number },
): EngineError {
  const isMistake = failures.some(({ cause }) => cause instanceof SameServerError)
  const isHopeless = failures.every(({ cause }) =>
    cause instanceof NotSentError ? cause.permanent : isPermanent(cause),
  )
  const transient = !isMistake && !isHopeless
  const nodes = failures.map(({ node, cause }) => ({ node, cause: withRemedy(cause, resources) }))
  if (size > 1) return new QuorumError(resources, { quorum, size, nodes, transient })
  const [{ node, cause } = { node: 'the server', cause: new Error('no answer') }] = nodes
  return engineErrorFrom(cause, node, resources, { isPermanent: !transient })
}
