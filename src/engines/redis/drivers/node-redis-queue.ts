import { hasMethods, property } from '../../shared/shape.ts'
import type { Done } from '../client.ts'
import type { NodeRedisClient } from './node-redis-send.ts'
import { hush, ReplyOnDemand } from './reply-on-demand.ts'

/** What is used of the queue in which a client of node-redis keeps its commands. */
interface CommandQueue {
  addCommand?: (args: unknown, options?: unknown) => unknown
  /** With this the driver moves commands from one client to another. */
  prependCommandsToWrite(commands: readonly object[]): void
  isWaitingToWrite(): boolean
}

/** Sends words while the client is ready. Returns the promise of the reply, or undefined: then `done` gets it. */
type Sender = (words: readonly string[], done: Done) => Promise<unknown> | undefined

/**
 * Sends commands of node-redis that call back. Its own make a promise each, and one more is needed to hear of it: for a quorum of
 * five, that is more than all the rest of a lease. The client still checks that it is open, and writes; only where it would make a
 * command with a promise, for the length of that call, it is given ours. Undefined where this version of node-redis keeps its
 * commands in another way, or where the number of commands is limited.
 */
export function quietSender(
  client: NodeRedisClient,
  online: { sendCommand(args: readonly string[]): Promise<unknown> | undefined },
): Sender | undefined {
  const queue = queueOf(client)
  if (queue === undefined || property(property(client, 'options'), 'commandsQueueMaxLength')) return undefined
  let isTraced = false
  const onAsked = (): void => {
    isTraced = true
  }
  return (words, done) => {
    // Behind other commands the order is the driver's to keep. An own property is of somebody else who looks at the commands.
    if (isTraced || queue.isWaitingToWrite() || Object.hasOwn(queue, 'addCommand')) return online.sendCommand(words)
    let queued: ReplyOnDemand | undefined
    queue.addCommand = (args, options) => {
      delete queue.addCommand
      if (args !== words) return queue.addCommand!(args, options)
      queued = new ReplyOnDemand(onAsked)
      queue.prependCommandsToWrite([quiet(words, done, queued)])
      return queued
    }
    try {
      const answer = online.sendCommand(words)
      if (queued === undefined) return answer
      if ((answer as unknown) !== queued) {
        // Somebody has made another promise of it. The next commands are the driver's own.
        isTraced = true
        hush(answer)
      }
      return undefined
    } catch (error) {
      if (queued === undefined) throw error
      // Thrown by somebody who looks at the commands. This one is on its way and calls back.
      isTraced = true
      return undefined
    } finally {
      delete queue.addCommand
    }
  }
}

function queueOf(client: NodeRedisClient): CommandQueue | undefined {
  const queue = hasMethods(client, '_getQueue')
    ? (client as unknown as { _getQueue(): unknown })._getQueue()
    : undefined
  return hasMethods(queue, 'addCommand', 'prependCommandsToWrite', 'isWaitingToWrite')
    ? (queue as CommandQueue)
    : undefined
}

/**
 * A command as node-redis keeps it. The callback comes when a promise would be heard of, and not before: the driver calls these while it
 * reads replies, or throws away what it has, and must be done with that before anything else is asked of it.
 */
function quiet(args: readonly string[], done: Done, queued: ReplyOnDemand): object {
  return {
    args,
    resolve: (reply: unknown) => {
      queued.settle(undefined, reply)
      queueMicrotask(() => done(undefined, reply))
    },
    reject: (error: unknown) => {
      queued.settle(error, undefined)
      queueMicrotask(() => done(error))
    },
    chainId: undefined,
    abort: undefined,
    timeout: undefined,
    channelsCounter: undefined,
    slotNumber: undefined,
    typeMapping: {},
  }
}
