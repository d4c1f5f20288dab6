import type { Done } from '../client.ts'
import { hasMethods, property } from '../../shared/shape.ts'
import { encode, wordsOf, type Piece } from '../pieces.ts'
import type { IoredisClient } from './ioredis-send.ts'
import { plain } from './reply.ts'
import { hush, ReplyOnDemand } from './reply-on-demand.ts'

/** What is used of a command of ioredis or iovalkey. */
interface Command {
  name: string
  args: readonly string[]
  isResolved: boolean
  isSettled: boolean
  promise: ReplyOnDemand
  transformReply(reply: unknown): unknown
}

type CommandClass = new (name: string, args: readonly string[], options: object) => Command

interface CommandSender {
  sendCommand(command: Command): unknown
}

/**
 * Sends commands of ioredis that are encoded already and that call back. Its own commands make a promise each and encode
 * every argument anew: for a quorum of five, that is more than all the rest of a lease. Undefined where this version of ioredis
 * makes its commands in another way.
 */
export function quietSender(
  client: IoredisClient,
  explain: (error: unknown) => unknown,
): ((command: readonly Piece[], done: Done) => void) | undefined {
  const Base = commandClass(client)
  if (Base === undefined || !hasMethods(client, 'sendCommand')) return undefined
  const Quiet = quiet(Base, explain)
  return (command, done) => {
    const outgoing = new Quiet(command, done)
    const answer = (client as unknown as CommandSender).sendCommand(outgoing)
    if (answer !== outgoing.promise) hush(answer)
    outgoing.isSending = false
  }
}

/** ioredis has no way to its class from a client, but a pipeline that is never sent has made one of its commands. */
function commandClass(client: IoredisClient): CommandClass | undefined {
  const pipeline = client.pipeline()
  pipeline.call('PING')
  const [made] = (property(pipeline, '_queue') ?? []) as readonly unknown[]
  if (!hasMethods(made, 'initPromise', 'toWritable', 'transformReply')) return undefined
  return made.constructor as CommandClass
}

function quiet(Base: CommandClass, explain: (error: unknown) => unknown) {
  return class QuietCommand extends Base {
    readonly #command: readonly Piece[]
    readonly #done: Done
    isSending = true

    constructor(command: readonly Piece[], done: Done) {
      super('evalsha', [], { replyEncoding: 'utf8' })
      this.#command = command
      this.#done = done
      // Somebody who traces commands takes them off the command and calls them by themselves, as functions.
      this.resolve = this.resolve.bind(this)
      this.reject = this.reject.bind(this)
    }

    /** Called by the constructor of ioredis in place of making a promise. */
    initPromise(): void {
      this.isResolved = false
      this.isSettled = false
      this.promise = new ReplyOnDemand()
    }

    toWritable(): string {
      return encode(this.#command)
    }

    resolve(reply: unknown): ReplyOnDemand {
      this.isResolved = true
      this.#settle(undefined, plain(this.transformReply(reply)))
      return this.promise
    }

    reject(error: unknown): void {
      // For messages of ioredis and of those who look at its errors.
      this.args = wordsOf(this.#command).slice(1)
      this.#settle(explain(error), undefined)
    }

    #settle(error: unknown, reply: unknown): void {
      if (this.isSettled) return
      this.isSettled = true
      clearTimeout(property(this, '_commandTimeoutTimer') as NodeJS.Timeout | undefined)
      this.promise.settle(error, reply)
      // A command that ioredis refuses to take is refused in the middle of sending it.
      if (this.isSending) queueMicrotask(() => this.#done(error, reply))
      else this.#done(error, reply)
    }
  }
}
