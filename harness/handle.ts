import type { Command, Server } from './process.ts'

export interface Address {
  port: number
  url: string
}

interface RestartOptions {
  empty?: boolean
  prepare?: () => void
  as?: (command: Command) => Command
}

/** What every server of the tests can do, whatever its kind. */
export class ServerHandle implements AsyncDisposable {
  readonly host = '127.0.0.1'
  readonly port: number
  readonly url: string
  readonly #server: Server
  readonly #empty: () => void | Promise<void>

  /** `empty` forgets all data; it is called while the server is down. */
  constructor(server: Server, { port, url }: Address, empty: () => void | Promise<void>) {
    this.port = port
    this.url = url
    this.#server = server
    this.#empty = empty
  }

  get pid(): number {
    return this.#server.pid
  }

  /** The user that it alone runs as, where servers are told apart by that. */
  get ownUser(): number | undefined {
    return this.#server.ownUser
  }

  get isRunning(): boolean {
    return this.#server.isRunning
  }

  /** The last lines that the server printed. */
  get log(): string {
    return this.#server.log
  }

  freeze(): Promise<void> {
    return this.#server.freeze()
  }

  thaw(): Promise<void> {
    return this.#server.thaw()
  }

  /** A crash. `restart` brings the server back on the same port. */
  kill(): Promise<void> {
    return this.#server.kill()
  }

  /** `prepare` is called while it is down. `as` makes another command of its own, such as a newer version on the same data. */
  restart({ empty = false, prepare, as }: RestartOptions = {}): Promise<void> {
    return this.#server.restart(empty ? this.#empty : prepare, as)
  }

  /** For good: removes the data too. */
  stop(): Promise<void> {
    return this.#server.stop()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }
}
