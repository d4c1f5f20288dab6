import { errorMonitor } from '../../../platform.ts'
import { hasMethods, property, text } from '../../shared/shape.ts'

const remembered = new WeakMap<object, { error: Error | undefined }>()

/**
 * Remembers why a client is not connected. It only observes: an error without another listener is still printed, or ends the
 * process, as the driver does it. Once for each client, also if several engines use it.
 */
export function rememberErrors(client: object): void {
  if (errorMonitor === undefined || remembered.has(client) || !isEmitter(client)) return
  const last: { error: Error | undefined } = { error: undefined }
  remembered.set(client, last)
  client.on(errorMonitor, (error: unknown) => {
    if (error instanceof Error) last.error = error
  })
  client.on('ready', () => (last.error = undefined))
}

/** The last error since the client was last connected. ioredis keeps an error from before we listened in its socket. */
export function lastError(client: object): Error | undefined {
  const errored = property(property(client, 'stream'), 'errored')
  return remembered.get(client)?.error ?? (errored instanceof Error ? errored : undefined)
}

/** In words, for a client that is not connected: 'the client is reconnecting: connect ECONNREFUSED 127.0.0.1:6379'. */
export function troubleOf(client: object, state: string): string {
  const error = lastError(client)
  return `the client is ${state}${error === undefined ? '' : `: ${reasonOf(error)}`}`
}

/** An ioredis Cluster that finds no node keeps the reason of the last one beside its own. */
export function reasonOf(error: Error): string {
  const last = 'lastNodeError' in error ? error.lastNodeError : undefined
  const own = error.message.replace(/\.$/, '')
  return last instanceof Error ? `${own}: ${last.message}` : own
}

/**
 * ioredis puts the command into the error. That of a login has the password, which every log of the error would show. The user's
 * command rejects with the same object when the login before it was refused.
 */
export function withoutLogin<E>(error: E): E {
  for (const one of [error, property(error, 'lastNodeError')]) {
    const command = property(one, 'command')
    if (/^(auth|hello)$/i.test(text(command, 'name') ?? '')) Reflect.set(command as object, 'args', [])
  }
  return error
}

interface Emitter {
  on(event: string | symbol, listener: (error: unknown) => void): unknown
}

function isEmitter(client: object): client is Emitter {
  return hasMethods(client, 'on')
}
