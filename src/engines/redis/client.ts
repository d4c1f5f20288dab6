import type { Clock } from '../../clock.ts'
import type { Random } from '../../random.ts'
import type { Piece } from './pieces.ts'

/** What the engine needs of a Redis client of any driver: in essence, "run this command". */
export interface RedisClient {
  readonly driver: 'ioredis' | 'iovalkey' | 'node-redis' | 'valkey-glide'
  /** The user's own object: shows whether the same client was given twice. */
  readonly identity: object
  /** Where it connects to, for messages: 'host:port', never a password. */
  readonly label: string
  /** Host, port and database of the one server that it connects to, as text. Undefined where they are not known, or change. */
  readonly server?: string | undefined
  /** A Redis Cluster: keys of one command must share a hash slot, and releases are published on sharded channels. */
  readonly cluster: boolean
  /** Why this client cannot be used (closed, never connected), or undefined while it can. */
  unusable(): string | undefined
  /** What is wrong with its connection now, such as 'the client is reconnecting: connect ECONNREFUSED …'; for messages. */
  trouble?(): string | undefined
  /** Sends one command; on a Cluster it goes to the master of `key`. Rejects with the server's or the connection's error. */
  run(command: readonly string[], key?: string): Promise<unknown>
  /** As `run`, but for the commands that every lease needs: in pieces, and without a promise. Missing where a driver has no way. */
  send?(command: readonly Piece[], done: Done): void
  /** Sends commands back to back on one connection: WAIT counts only the writes of its own connection. */
  runTogether(commands: readonly (readonly string[])[], key: string): Promise<readonly unknown[]>
  /** Runs one command on every master that this client knows: on a Cluster each of its masters, otherwise the server. */
  masters(): Promise<readonly RedisMaster[]>
  /** A connection of its own for subscriptions, opened with the first one; undefined where the driver cannot open one. */
  subscriber(clock: Clock, random: Random): Subscriber | undefined
}

/** Gets the reply, or an error. Never called before the call that sent the command has returned. */
export type Done = (error: unknown, reply?: unknown) => void

/** Sends one command. */
export type Send = (command: readonly string[]) => Promise<unknown>

/** One server, addressed directly. */
export interface RedisMaster {
  readonly label: string
  run(command: readonly string[]): Promise<unknown>
}

/** A connection of a Redis client that is subscribed to channels. */
export interface Subscriber {
  /** Resolves when the server has confirmed the subscription; rejects when it cannot be made. One listener a channel. */
  subscribe(channel: string, onMessage: (message: string) => void): Promise<void>
  unsubscribe(channel: string): Promise<void>
  /** Called for each channel whose subscription was lost with its connection and is back: messages in between are gone. */
  onGap(callback: (channel: string) => void): void
  close(): Promise<void>
}
