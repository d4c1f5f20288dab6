import { shown } from '../../duration.ts'

/** The module `node-zookeeper-client`, as far as its types tell; what else is needed is looked for at run time. */
export interface ZookeeperDriver {
  createClient(servers: string, options: { sessionTimeout: number; spinDelay: number; retries: number }): unknown
}

/** What the server keeps of a node. Numbers of 64 bits come as eight bytes. */
export interface Stat {
  readonly czxid: Buffer
  readonly mtime: Buffer
  readonly version: number
  readonly numChildren: number
}

/** An access rule, as the driver makes it. */
export interface Acl {
  readonly permission: number
  readonly id: { readonly scheme: string; readonly id: string }
}

export type Callback<T extends readonly unknown[]> = (error: unknown, ...values: T) => void

export interface OpResult {
  readonly path?: string
  readonly stat?: Stat
}

export interface Transaction {
  create(path: string, data: Buffer, acl: readonly Acl[], mode: number): this
  setData(path: string, data: Buffer): this
  check(path: string): this
  remove(path: string): this
  commit(done: Callback<[results?: readonly OpResult[]]>): void
}

export interface Client {
  on(event: string, listener: () => void): unknown
  connect(): void
  close(): void
  getSessionTimeout(): number
  addAuthInfo(scheme: string, auth: Buffer): void
  setData(path: string, data: Buffer, done: Callback<[stat: Stat]>): void
  remove(path: string, version: number, done: Callback<[]>): void
  exists(path: string, done: Callback<[stat: Stat | null]>): void
  getData(path: string, done: Callback<[data: Buffer | undefined, stat: Stat]>): void
  getData(path: string, watcher: () => void, done: Callback<[data: Buffer | undefined, stat: Stat]>): void
  getChildren(path: string, done: Callback<[names: readonly string[], stat: Stat]>): void
  getACL(path: string, done: Callback<[acl: readonly Acl[]]>): void
  transaction(): Transaction
  /**
   * Not part of the driver's documented surface. Without it nobody could make the client leave a server that accepts
   * connections and never answers: it has no deadline for an answer, nor for the handshake.
   */
  readonly connectionManager: {
    socket?: { destroy(error?: Error): void }
    pendingBuffer: Buffer | null
    setState(state: number): void
  }
}

export const MODE = { persistent: 0, ephemeralSequential: 3 }

/** The connection manager's own number for "closing". */
export const CLOSING = -1

export const CODE = {
  connectionLoss: -4,
  badArguments: -8,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  invalidAcl: -114,
  authFailed: -115,
}

/** Trying again helps against none of these. */
const FINAL: readonly number[] = [CODE.badArguments, CODE.noAuth, CODE.invalidAcl, CODE.authFailed]

/** The server has answered, and the answer is no: nothing was done. */
export class RefusedError extends Error {
  readonly code: number
  readonly final: boolean

  constructor(code: number, cause: unknown) {
    super(cause instanceof Error ? cause.message : `error ${code}`, { cause })
    this.name = 'RefusedError'
    this.code = code
    this.final = FINAL.includes(code)
  }
}

/** No answer came: it may have been done, or be done yet. */
export class UnansweredError extends Error {
  override readonly name = 'UnansweredError'
}

/** It was not even sent. */
export class NotConnectedError extends Error {
  override readonly name = 'NotConnectedError'
  readonly final: boolean

  constructor(message: string, final = false) {
    super(message)
    this.final = final
  }
}

export function isCode(error: unknown, ...codes: readonly number[]): error is RefusedError {
  return error instanceof RefusedError && codes.includes(error.code)
}

/** What a callback's error means. */
export function readError(error: unknown): Error {
  const code: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined
  if (typeof code !== 'number' || code === CODE.connectionLoss || code === CODE.sessionExpired) {
    return new UnansweredError('the connection was lost before the answer came', { cause: error })
  }
  return new RefusedError(code, error)
}

export function numberOf(bytes: Buffer): bigint {
  return bytes.readBigInt64BE()
}

export function milliseconds(bytes: Buffer): number {
  return Number(numberOf(bytes))
}

const METHODS = ['connect', 'close', 'on', 'transaction', 'exists', 'getData', 'getChildren', 'addAuthInfo']

export function clientOrThrow(value: unknown): Client {
  const lacking = METHODS.filter((name) => typeof member(value, name) !== 'function')
  if (typeof member(value, 'connectionManager') !== 'object') lacking.push('connectionManager')
  if (lacking.length === 0) return value as Client
  throw new TypeError(
    `driver: expected node-zookeeper-client, got one whose client has no ${lacking.join(', ')} (${shown(value)})`,
  )
}

/** Rules that let only those in who have given the same credentials, or everyone. */
export function aclOrThrow(driver: unknown, who: 'creator' | 'anyone'): readonly Acl[] {
  const name = who === 'creator' ? 'CREATOR_ALL_ACL' : 'OPEN_ACL_UNSAFE'
  const acl = member(member(driver, 'ACL'), name)
  if (Array.isArray(acl) && acl.length > 0) return acl as readonly Acl[]
  throw new TypeError(`driver: expected the module node-zookeeper-client, got one without ACL.${name}`)
}

function member(value: unknown, name: string): unknown {
  return (typeof value === 'object' || typeof value === 'function') && value !== null
    ? Reflect.get(value, name)
    : undefined
}
