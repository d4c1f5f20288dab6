import type { RedisClient } from '../../src/engines/redis/client.ts'
import { wordsOf } from '../../src/engines/redis/pieces.ts'
import type { Wiring } from '../client.ts'
import type { Request } from '../network.ts'
import { isGreeting, type Wiretap } from './socket.ts'

interface Issued {
  readonly text: string
  readonly request: Request
  isOnItsWay: boolean
  wasSent: boolean
}

/** Knows of every command which step of the protocol it is, from when the library hands it to the driver. */
export class Book implements Wiretap {
  readonly #wiring: Wiring
  #issued: Issued[] = []

  constructor(wiring: Wiring) {
    this.#wiring = wiring
  }

  noting(client: RedisClient): RedisClient {
    return {
      ...client,
      // One node's engine would draw from the system's.
      subscriber: (clock) => client.subscriber(clock, this.#wiring.random.fork('retries')),
      run: (command, key) => this.#follow([command], () => client.run(command, key)),
      runTogether: (commands, key) => this.#follow(commands, () => client.runTogether(commands, key)),
      ...(client.send === undefined
        ? {}
        : {
            send: (command, done) => {
              const issued = this.#note([wordsOf(command)])
              client.send!(command, (error, reply) => {
                this.#settled(issued)
                done(error, reply)
              })
            },
          }),
    }
  }

  async #follow<T>(commands: readonly (readonly string[])[], run: () => Promise<T>): Promise<T> {
    const issued = this.#note(commands)
    try {
      return await run()
    } finally {
      this.#settled(issued)
    }
  }

  #note(commands: readonly (readonly string[])[]): Issued {
    const request = { ...this.#wiring.describe(commands), commands }
    const issued = { text: textOf(commands), request, isOnItsWay: false, wasSent: false }
    this.#issued.push(issued)
    this.#wiring.issued?.(request, this.#wiring.server.name)
    return issued
  }

  /** The driver has answered: if the server has not, it has given up. */
  #settled(issued: Issued): void {
    if (!this.#issued.includes(issued)) return
    this.#issued = this.#issued.filter((other) => other !== issued)
    if (issued.wasSent) this.#wiring.dropped(issued.request, this.#wiring.server.name)
  }

  sent(commands: readonly (readonly string[])[]): Request {
    const { server } = this.#wiring
    if (isGreeting(commands[0]!)) return { steps: [], commands }
    const text = textOf(commands)
    const one = this.#issued.find((issued) => issued.text === text && !issued.isOnItsWay) ?? this.#note(commands)
    this.#wiring.sent(one.request, server.name, one.wasSent)
    one.isOnItsWay = true
    one.wasSent = true
    return one.request
  }

  heard(request: Request): void {
    if (request.steps.length === 0) return
    this.#issued = this.#issued.filter((issued) => issued.request !== request)
    this.#wiring.heard(request, this.#wiring.server.name)
  }

  lost(request: Request): void {
    const one = this.#issued.find((issued) => issued.request === request)
    if (one !== undefined) one.isOnItsWay = false
  }
}

function textOf(commands: readonly (readonly string[])[]): string {
  return JSON.stringify(commands)
}
