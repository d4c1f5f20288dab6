import { EngineError } from '../../errors.ts'
import { NotConnectedError, RefusedError } from './driver.ts'

export function failed(error: unknown, resources: readonly string[]): EngineError {
  if (error instanceof EngineError) return error
  const final = (error instanceof RefusedError || error instanceof NotConnectedError) && error.final
  const message = error instanceof Error ? error.message : String(error)
  return new EngineError(`zookeeper: ${message}`, resources, { cause: error, transient: !final })
}
