/** What the engine needs of a Redis connection, whatever the driver: in essence, "run this command". */
export interface RedisClient {
  readonly driver: 'ioredis' | 'iovalkey' | 'node-redis' | 'valkey-glide'
  /** The user's own object, by which the same client given twice is noticed. */
  readonly identity: object
  /** Where it connects to, for messages: 'host:port', never a password. */
  readonly label: string
  /** A Redis Cluster: keys of one command must share a hash slot, and releases are told by sharded pub/sub. */
  readonly cluster: boolean
  /** Why this client can't be used (closed, never connected), or undefined while it can. */
  unusable(): string | undefined
  /** Sends one command; on a Cluster it goes to the master of `key`. Rejects with the server's or the connection's error. */
  run(command: readonly string[], key?: string): Promise<unknown>
  /** Sends commands back to back on one connection: WAIT counts only the writes of its own connection. */
  runTogether(commands: readonly (readonly string[])[], key: string): Promise<readonly unknown[]>
  /** Runs one command on every master that this client knows: on a Cluster each of its masters, otherwise the server. */
  masters(): Promise<readonly RedisMaster[]>
  /** A connection of its own for subscriptions, not opened before the first one; undefined where the driver has none. */
  subscriber(): Subscriber | undefined
}

/** One server, addressed directly. */
export interface RedisMaster {
  readonly label: string
  run(command: readonly string[]): Promise<unknown>
}

export interface Subscriber {
  /** Resolves when the server has confirmed; rejects when it can't be had. One listener a channel. */
  subscribe(channel: string, onMessage: (message: string) => void): Promise<void>
  unsubscribe(channel: string): Promise<void>
  /** Called after the connection was lost and is back: messages in between are gone. */
  onGap(callback: () => void): void
  close(): Promise<void>
}
