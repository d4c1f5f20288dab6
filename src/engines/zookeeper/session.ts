import { instant, type Clock, type Instant, type Timer } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import { inTime } from '../shared/in-time.ts'
import {
  CLOSING,
  type Callback,
  type ZookeeperClient,
  type OpResult,
  type ZnodeStat,
  type ZookeeperTransaction,
} from './client.ts'
import { NotConnectedError, readError, UnknownOutcomeError } from './errors.ts'
import { Touches } from './touches.ts'
import { ZnodeWatches } from './wakeups.ts'

/** Parts of the session's time-out: between two heartbeats, and until the greeting or the answer to a heartbeat. */
const BEAT_PART = 1 / 6
const SILENCE_PART = 1 / 8
/** A server that is merely busy answers in this time. Without a lower bound, short sessions would never be opened. */
const SILENCE_MS = { least: 250, most: 5000 }
/** A server that runs answers at once. If it does not, there is nothing to lose. */
const FAREWELL_MS = 1000

/**
 * One session and its client, from the first connection until the servers or we end it. The client connects again by itself.
 * This class adds what it lacks:
 * - A deadline for every answer and for the greeting. The client waits forever for a server that accepts connections and is
 *   silent.
 * - A server that answers what the client cannot read is left. The client would throw where nobody can catch it, and end the process.
 * - Nothing is handed to the client while it is not connected. It would send that later, before its credentials, when nobody
 *   waits for it any more; and if the session has ended by then, it would never answer.
 */
export class ZookeeperSession {
  readonly #client: ZookeeperClient
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #touches: Touches
  readonly #waiting = new Set<(over?: NotConnectedError) => void>()
  readonly #reconnected = new Set<() => void>()
  readonly #watches = new ZnodeWatches()
  #timeoutMs: number
  #connected = false
  /** How many connections there have been. */
  #connections = 0
  #over: NotConnectedError | undefined
  /** A connection that succeeds now was begun at this moment or later. */
  #attempted: Instant
  #greeting: Deadline | undefined
  #beat: Timer | undefined
  #left: (() => void) | undefined

  constructor(client: ZookeeperClient, timeoutMs: number, clock: Clock, deadlines: Deadlines) {
    this.#client = client
    this.#timeoutMs = timeoutMs
    this.#clock = clock
    this.#deadlines = deadlines
    this.#attempted = instant(clock)
    this.#touches = new Touches(this.#attempted)
    client.on('connected', () => this.#onConnected())
    client.on('disconnected', () => this.#onDisconnected())
    client.on('expired', () => this.#refused(new NotConnectedError('the session has expired')))
    client.on('authenticationFailed', () => this.#refused(new NotConnectedError('authentication failed', true)))
    this.#leaveNonsense()
    this.#awaitGreeting()
    client.connect()
  }

  /** The session's time-out as the servers grant it. Until they have answered: what was asked for. */
  get timeoutMs(): number {
    return this.#timeoutMs
  }

  get connected(): boolean {
    return this.#connected
  }

  /** Why the session has ended; undefined while it has not. */
  get over(): NotConnectedError | undefined {
    return this.#over
  }

  /** Resolves when there is a connection. */
  ready(withinMs: number): Promise<void> {
    if (this.#over !== undefined) return Promise.reject(this.#over)
    if (this.#connected) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const settle = (over?: NotConnectedError): void => {
        deadline.cancel()
        this.#waiting.delete(settle)
        if (over === undefined) resolve()
        else reject(over)
      }
      const deadline = this.#deadlines.start(withinMs, () =>
        settle(new NotConnectedError(`no connection to any server within ${Math.round(withinMs)} ms`)),
      )
      this.#waiting.add(settle)
    })
  }

  /**
   * Sends one request, at once if there is a connection. Requests of one turn of the event loop are done in their order.
   * `withinMs` is for the connection, and then once more for the answer: with only the rest of it, a connection that was
   * late would be given up again.
   */
  ask<T extends readonly unknown[]>(
    withinMs: number,
    send: (client: ZookeeperClient, done: Callback<T>) => void,
  ): Promise<readonly [...T]> {
    if (this.#connected) return this.#send(withinMs, send)
    return this.ready(withinMs).then(() => this.#send(withinMs, send))
  }

  /** Does all of it or nothing. */
  async commit(withinMs: number, add: (transaction: ZookeeperTransaction) => void): Promise<readonly OpResult[]> {
    const [results = []] = await this.ask<[results?: readonly OpResult[]]>(withinMs, (client, done) => {
      // Never retried by the driver, unlike its other calls.
      const transaction = client.transaction()
      add(transaction)
      transaction.commit(done)
    })
    return results
  }

  /** Reads a znode, and calls `changed` once, when it is next written or removed. Rejects if it does not exist. */
  async watch(
    path: string,
    changed: () => void,
    withinMs: number,
  ): Promise<readonly [data: Buffer | undefined, stat: ZnodeStat]> {
    const watch = this.#watches.add(path, changed)
    try {
      // Not `exists`: for a znode that is gone it would leave a watch behind forever, in the driver and on the server.
      const found = await this.ask<[data: Buffer | undefined, stat: ZnodeStat]>(withinMs, (client, done) =>
        client.getData(path, watch.fire, done),
      )
      watch.armed()
      return found
    } catch (error) {
      this.unwatch(path, changed)
      throw error
    }
  }

  unwatch(path: string, changed: () => void): void {
    this.#watches.remove(path, changed)
  }

  /** Calls the listener after every reconnection, and when the session ends. Returns a function that stops that. */
  onReconnected(listener: () => void): () => void {
    this.#reconnected.add(listener)
    return () => void this.#reconnected.delete(listener)
  }

  /** Whether the servers surely keep the session, and its znodes, for this long from that moment on. */
  covers(from: Instant, forMs: number): boolean {
    return this.#touches.cover(from, forMs, this.#timeoutMs)
  }

  /** Ends the session and with it all its znodes, if the servers can be reached. */
  async close(): Promise<void> {
    const connected = this.#connected
    const over = this.#over !== undefined
    this.#end(new NotConnectedError('this engine is closed'))
    if (over) return
    if (!connected) {
      // `close()` of a client without a connection writes to a socket that may not be there, and takes the next
      // greeting for the answer.
      this.#client.connectionManager.setState(CLOSING)
      this.#drop()
      return
    }
    await new Promise<void>((resolve) => {
      const deadline = this.#deadlines.start(FAREWELL_MS, () => this.#drop())
      this.#left = () => {
        deadline.cancel()
        resolve()
      }
      this.#client.close()
    })
  }

  #send<T extends readonly unknown[]>(
    withinMs: number,
    send: (client: ZookeeperClient, done: Callback<T>) => void,
  ): Promise<readonly [...T]> {
    const connection = this.#connections
    const sent = instant(this.#clock)
    const answer = new Promise<T>((resolve, reject) => {
      send(this.#client, (error, ...values) => {
        const problem = error ? readError(error) : undefined
        if (!(problem instanceof UnknownOutcomeError)) this.#touches.answered(sent, this.#timeoutMs)
        if (problem === undefined) resolve(values)
        else reject(problem)
      })
    })
    const silence = (): Error => {
      // Answers come in order, so nothing that was sent later will be answered either. And only when this connection is
      // gone, nothing that was sent on it can be done any more.
      if (connection === this.#connections) this.#drop()
      return new UnknownOutcomeError(`no answer within ${Math.round(withinMs)} ms`)
    }
    return inTime(answer, this.#deadlines, withinMs, { silence })
  }

  #onConnected(): void {
    if (this.#over !== undefined) return
    this.#greeting?.cancel()
    this.#connected = true
    this.#connections++
    const timeoutMs = this.#client.getSessionTimeout()
    this.#timeoutMs = this.#connections === 1 ? timeoutMs : Math.min(this.#timeoutMs, timeoutMs)
    this.#touches.reached(this.#attempted)
    this.#beatLater()
    for (const settle of this.#waiting) settle()
    if (this.#connections > 1) this.#tellReconnected()
  }

  #onDisconnected(): void {
    // The driver would read the rest of an answer that broke off as the beginning of the next greeting.
    this.#client.connectionManager.pendingBuffer = null
    this.#connected = false
    if (this.#over === undefined) this.#awaitGreeting()
    this.#left?.()
  }

  /** If the server does not greet in time, the next one is asked. */
  #awaitGreeting(): void {
    this.#attempted = instant(this.#clock)
    this.#greeting = this.#deadlines.start(this.#silenceMs, () => {
      if (this.#over !== undefined || this.#connected) return
      this.#drop()
      this.#awaitGreeting()
    })
  }

  /** The heartbeat: when it is not answered we turn to another server, even while there are no requests. */
  #beatLater(): void {
    this.#beat?.cancel()
    this.#beat = this.#clock.timer(
      () => {
        if (this.#over !== undefined || !this.#connected) return
        this.ask(this.#silenceMs, (client, done: Callback<unknown[]>) => client.exists('/', done)).catch(
          // The connection has been dropped. The next one starts the heartbeat again.
          () => undefined,
        )
        this.#beatLater()
      },
      this.#timeoutMs * BEAT_PART,
      true,
    )
  }

  get #silenceMs(): number {
    return Math.min(Math.max(this.#timeoutMs * SILENCE_PART, SILENCE_MS.least), SILENCE_MS.most)
  }

  #leaveNonsense(): void {
    const { connectionManager } = this.#client
    const read = connectionManager.onSocketData?.bind(connectionManager)
    if (read === undefined) return
    connectionManager.onSocketData = (bytes) => {
      try {
        read(bytes)
      } catch {
        this.#drop()
      }
    }
  }

  /** The client then connects to the next server. Without an error the driver would keep its timer for this connection. */
  #drop(): void {
    const { connectionManager } = this.#client
    this.#connected = false
    connectionManager.pendingBuffer = null
    connectionManager.socket?.destroy(new Error('given up'))
  }

  /** After this the client does not connect again, but waits for the server to hang up. We do not wait for that. */
  #refused(over: NotConnectedError): void {
    this.#end(over)
    this.#drop()
  }

  #end(over: NotConnectedError): void {
    if (this.#over !== undefined) return
    this.#over = over
    this.#connected = false
    this.#beat?.cancel()
    this.#greeting?.cancel()
    for (const settle of this.#waiting) settle(over)
    this.#tellReconnected()
  }

  #tellReconnected(): void {
    for (const listener of this.#reconnected) listener()
  }
}
