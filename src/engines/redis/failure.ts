import { EngineError, QuorumError, type NodeFailure } from '../../errors.ts'
import { isPermanent } from './drivers/server-errors.ts'

/** Too few nodes did what they were asked to; worth trying again unless none of them will ever do it. */
export function failureOf(
  failures: readonly NodeFailure[],
  resources: readonly string[],
  { quorum, size }: { readonly quorum: number; readonly size: number },
): EngineError {
  const transient = failures.filter(({ cause }) => !isPermanent(cause)).length > 0
  if (size > 1) return new QuorumError(resources, { quorum, size, nodes: failures, transient })
  const [{ node, cause } = { node: 'the server', cause: undefined }] = failures
  return new EngineError(`${node}: ${cause?.message ?? 'no answer'}`, resources, { cause, transient })
}
