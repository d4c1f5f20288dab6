import { shown } from '../../duration.ts'
import { hasMethods, property } from '../shared/shape.ts'

/** The module `node-zookeeper-client`. Its client is checked at run time, because its types tell less than is needed. */
export interface ZookeeperDriver {
  createClient(servers: string, options: { sessionTimeout: number; spinDelay: number; retries: number }): unknown
}

/** What the server keeps about a znode. Numbers of 64 bits come as eight bytes. */
export interface ZnodeStat {
  readonly czxid: Buffer
  readonly ctime: Buffer
  readonly mtime: Buffer
  readonly version: number
  readonly numChildren: number
}

/** An access rule, as the driver makes it. */
export interface ZookeeperAcl {
  readonly permission: number
  readonly id: { readonly scheme: string; readonly id: string }
}

export type Callback<T extends readonly unknown[]> = (error: unknown, ...values: T) => void

export interface OpResult {
  readonly path?: string
  readonly stat?: ZnodeStat
}

export interface ZookeeperTransaction {
  create(path: string, data: Buffer, acl: readonly ZookeeperAcl[], mode: number): this
  setData(path: string, data: Buffer): this
  check(path: string): this
  remove(path: string): this
  commit(done: Callback<[results?: readonly OpResult[]]>): void
}

export interface ZookeeperClient {
  on(event: string, listener: () => void): unknown
  connect(): void
  close(): void
  getSessionTimeout(): number
  addAuthInfo(scheme: string, auth: Buffer): void
  setData(path: string, data: Buffer, done: Callback<[stat: ZnodeStat]>): void
  remove(path: string, version: number, done: Callback<[]>): void
  exists(path: string, done: Callback<[stat: ZnodeStat | null]>): void
  getData(path: string, done: Callback<[data: Buffer | undefined, stat: ZnodeStat]>): void
  getData(path: string, watcher: () => void, done: Callback<[data: Buffer | undefined, stat: ZnodeStat]>): void
  getChildren(path: string, done: Callback<[names: readonly string[], stat: ZnodeStat]>): void
  getACL(path: string, done: Callback<[acl: readonly ZookeeperAcl[]]>): void
  transaction(): ZookeeperTransaction
  /**
   * Not part of the driver's documented interface. It is the only way to make the client leave a server that accepts
   * connections and never answers, or answers nonsense: the client has no deadline for an answer or for the handshake, and throws
   * what it cannot read from the listener of its socket.
   */
  readonly connectionManager: {
    socket?: { destroy(error?: Error): void }
    pendingBuffer: Buffer | null
    setState(state: number): void
    /** Called with what the socket has read. */
    onSocketData?(bytes: Buffer): void
  }
}

export const MODE = { persistent: 0, ephemeralSequential: 3 }

/** The connection manager's own number for "closing". */
export const CLOSING = -1

export function numberOf(bytes: Buffer): bigint {
  return bytes.readBigInt64BE()
}

export function milliseconds(bytes: Buffer): number {
  return Number(numberOf(bytes))
}

const METHODS = ['connect', 'close', 'on', 'transaction', 'exists', 'getData', 'getChildren', 'addAuthInfo']

export function clientOrThrow(value: unknown): ZookeeperClient {
  const lacking = METHODS.filter((name) => !hasMethods(value, name))
  if (typeof property(value, 'connectionManager') !== 'object') lacking.push('connectionManager')
  if (lacking.length === 0) return value as ZookeeperClient
  throw new TypeError(
    `driver: expected node-zookeeper-client, got one whose client has no ${lacking.join(', ')} (${shown(value)})`,
  )
}

/** Access rules that admit only clients with the same credentials, or everyone. */
export function aclOrThrow(driver: unknown, who: 'creator' | 'anyone'): readonly ZookeeperAcl[] {
  const name = who === 'creator' ? 'CREATOR_ALL_ACL' : 'OPEN_ACL_UNSAFE'
  const acl = property(property(driver, 'ACL'), name)
  if (Array.isArray(acl) && acl.length > 0) return acl as readonly ZookeeperAcl[]
  throw new TypeError(`driver: expected the module node-zookeeper-client, got one without ACL.${name}`)
}
