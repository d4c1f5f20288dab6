import type { EngineError } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { reasonOf } from '../shared/http/endpoints.ts'

/** Consul answered, and refused. Asking again cannot help. */
export class ConsulError extends Error {
  readonly status: number

  constructor(message: string, status: number) {
    super(message)
    this.name = 'ConsulError'
    this.status = status
  }
}

/** The servers refuse these for good, although with the same status as failures of their own. */
const REFUSED = /Permission denied|ACL not found|Invalid Session TTL|No path to datacenter|Missing node registration/

export function isFinal(message: string): boolean {
  return REFUSED.test(message)
}

export function isDenied(error: unknown): boolean {
  return error instanceof ConsulError && (error.status === 403 || /Permission denied|ACL not found/.test(error.message))
}

/** The ttl is shorter than `session_ttl_min` on the servers. */
export function isTtlTooShort(error: unknown): boolean {
  return error instanceof ConsulError && error.message.includes('Invalid Session TTL')
}

export function consulFailure(error: unknown, resources: readonly string[]): EngineError {
  const hint = isTtlTooShort(error)
    ? '; session_ttl_min in the servers’ configuration sets the shortest ttl of a session, and the option sessionTtlMin must be the same'
    : ''
  const message = `${reasonOf(error)}${hint}`
  return engineErrorFrom(error, 'consul', resources, { isPermanent: error instanceof ConsulError, message })
}
