import type { EngineError } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { reasonOf } from '../shared/http/endpoints.ts'

/** gRPC's own numbers. */
export const CODE = {
  invalidArgument: 3,
  notFound: 5,
  permissionDenied: 7,
  failedPrecondition: 9,
  unimplemented: 12,
  unauthenticated: 16,
}

const PERMANENT: readonly number[] = [
  CODE.invalidArgument,
  CODE.permissionDenied,
  CODE.unimplemented,
  CODE.unauthenticated,
]

/** etcd answered, and refused. */
export class EtcdError extends Error {
  readonly code: number
  /** Asking again cannot help. */
  readonly isPermanent: boolean

  constructor(message: string, code: number) {
    super(message)
    this.name = 'EtcdError'
    this.code = code
    this.isPermanent = PERMANENT.includes(code)
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
    error.code === CODE.unauthenticated ||
    /invalid auth token|revision in header is old|user name is empty/.test(error.message)
  )
}

export function isCode(error: unknown, ...codes: readonly number[]): boolean {
  return error instanceof EtcdError && codes.includes(error.code)
}
