import { inUnits } from '../../duration.ts'
import { QuorumError, type EngineError, type NodeFailure } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { NoAnswerError } from '../shared/in-time.ts'
import type { RedisClient } from './client.ts'
import { isPermanent } from './drivers/server-errors.ts'
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

function isHopeless(cause: Error): boolean {
  return cause instanceof NotSentError ? cause.permanent : isPermanent(cause)
}

/** Too few nodes did what they were asked for. Trying again makes sense unless none of them will ever do it. */
export function failureOf(
  failures: readonly NodeFailure[],
  resources: readonly string[],
  { quorum, size }: { readonly quorum: number; readonly size: number },
): EngineError {
  const transient = failures.some(({ cause }) => !isHopeless(cause))
  if (size > 1) return new QuorumError(resources, { quorum, size, nodes: failures, transient })
  const [{ node, cause } = { node: 'the server', cause: new Error('no answer') }] = failures
  return engineErrorFrom(cause, node, resources, { isPermanent: !transient })
}
