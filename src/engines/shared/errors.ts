import { EngineError, messageOf } from '../../errors.ts'

export interface FailureDetails {
  /** Trying again cannot help. Default false. */
  readonly isPermanent?: boolean
  /** In place of the message of the cause. */
  readonly message?: string
}

/** Turns what a driver or a server failed with into an `EngineError` that names the engine. An `EngineError` stays as it is. */
export function engineErrorFrom(
  cause: unknown,
  engine: string,
  resources: readonly string[],
  { isPermanent = false, message = messageOf(cause) }: FailureDetails = {},
): EngineError {
  if (cause instanceof EngineError) return cause
  return new EngineError(`${engine}: ${message}`, resources, { cause, transient: !isPermanent })
}
