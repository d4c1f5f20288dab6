import type { EngineError } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { reasonOf } from '../shared/http/endpoints.ts'

const INVALID_ARGUMENT = 3
const NOT_FOUND = 5
const PERMISSION_DENIED = 7
const FAILED_PRECONDITION = 9
const UNIMPLEMENTED = 12
const UNAUTHENTICATED = 16

/** etcd answered, and refused. */
export class EtcdError extends Error {
  /** gRPC's number for the kind of error. */
  readonly code: number
  /** Asking again cannot help. */
  readonly isPermanent: boolean

  constructor(message: string, code: number) {
    super(message)
    this.name = 'EtcdError'
    this.code = code
    this.isPermanent = [INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED, UNIMPLEMENTED].includes(code)
  }
}

export function etcdFailure(error: unknown, resources: readonly string[]): EngineError {
  const isPermanent = error instanceof EtcdError && error.isPermanent
  return engineErrorFrom(error, 'etcd', resources, { isPermanent, message: reasonOf(error) })
}

/** A token lasts for some minutes, and no longer than the member that gave it. */
export function isStaleLogin(error: unknown): boolean {
  if (!(error instanceof EtcdError)) return false
  return (
    error.code === UNAUTHENTICATED ||
    /invalid auth token|revision in header is old|user name is empty/.test(error.message)
  )
}

/** Authentication is switched off on the servers. */
export function isLoginNeedless(error: unknown): boolean {
  return isPrecondition(error)
}

export function isNotFound(error: unknown): boolean {
  return error instanceof EtcdError && error.code === NOT_FOUND
}

/** An etcd lease with this id exists. */
export function isThereAlready(error: unknown): boolean {
  return isPrecondition(error)
}

export function isDenied(error: unknown): boolean {
  return error instanceof EtcdError && [INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED].includes(error.code)
}

function isPrecondition(error: unknown): boolean {
  return error instanceof EtcdError && error.code === FAILED_PRECONDITION
}
