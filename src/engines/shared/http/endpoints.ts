import { given } from '../../../arguments.ts'
import type { Clock } from '../../../clock.ts'
import { Deadlines } from '../../../deadlines.ts'
import { messageOf } from '../../../errors.ts'
import { inTime, NoAnswerError } from '../in-time.ts'
import type { FetchReply, Transport } from './transport.ts'

export interface HttpCall {
  readonly method: 'GET' | 'PUT' | 'POST'
  /** What follows the endpoint's URL, with a slash. */
  readonly path: string
  readonly headers: Record<string, string>
  readonly body?: string
  /** How long one server may take at most. */
  readonly timeoutMs: number
  /** Aborts when nobody wants the answer any more. */
  readonly signal?: AbortSignal
}

export interface HttpReply {
  readonly status: number
  readonly headers: FetchReply['headers']
  readonly text: string
}

export interface HttpStream {
  readonly status: number
  /** Pieces of text as they arrive; ends when the server ends it, throws when the connection breaks or the signal aborts. */
  readonly text: AsyncIterable<string>
}

/** Why a server that answers cannot serve this now, although another one may; undefined when it can. */
export type Unfit = (reply: HttpReply) => string | undefined

/** Far more than any answer to a lock; that of a list of all leases has some 300 characters a lease. */
const MOST_TEXT = 64 * 1024 * 1024

/** What of an answer that is an error goes into ours. */
export const MOST_OF_ERROR = 1000

export function shortOrThrow(text: string): string {
  if (text.length <= MOST_TEXT) return text
  throw new Error(`an answer of more than ${MOST_TEXT / 1024 / 1024} MB is not one to a lock`)
}

/** No server answered, or each was unfit. The message says why, for each of them. */
export class NoServerError extends Error {
  constructor(failures: readonly { readonly url: string; readonly why: string }[]) {
    super(failures.map(({ url, why }) => `${url}: ${why}`).join('; '))
    this.name = 'NoServerError'
  }
}

/**
 * Servers of which any can answer. The one that answered last is asked first. When a server does not answer in time, or
 * says that it cannot, the next one is asked. So a request may reach two servers, and every request must be safe to repeat.
 */
export class Endpoints {
  readonly urls: readonly string[]
  readonly #transport: Transport
  readonly #deadlines: Deadlines
  readonly #streams = new Set<AbortController>()
  #current = 0
  #closed = false

  constructor(urls: readonly string[], transport: Transport, clock: Clock) {
    this.urls = urls
    this.#transport = transport
    this.#deadlines = new Deadlines(clock)
  }

  /** The server that is asked first now. */
  get current(): string {
    return this.urls[this.#current]!
  }

  get closed(): boolean {
    return this.#closed
  }

  async send(call: HttpCall, unfit: Unfit): Promise<HttpReply> {
    const failures: { url: string; why: string }[] = []
    const first = this.#current
    for (let step = 0; step < this.urls.length; step++) {
      call.signal?.throwIfAborted()
      const index = (first + step) % this.urls.length
      const url = this.urls[index]!
      try {
        const reply = await this.#sendTo(url, call)
        const why = unfit(reply)
        if (why === undefined) {
          this.#current = index
          return reply
        }
        failures.push({ url, why })
      } catch (error) {
        // An abort is not the server's fault.
        call.signal?.throwIfAborted()
        failures.push({ url, why: reasonOf(error) })
      }
      // Another request may have moved on meanwhile.
      if (this.#current === index) this.#current = (index + 1) % this.urls.length
    }
    throw new NoServerError(failures)
  }

  /** Asks this server only: for questions about itself. */
  async ask(url: string, call: HttpCall): Promise<HttpReply> {
    try {
      return await this.#sendTo(url, call)
    } catch (error) {
      throw new NoServerError([{ url, why: reasonOf(error) }])
    }
  }

  /** Opens an answer without an end, from the current server. The call's deadline is for its beginning. */
  async open(call: HttpCall, signal: AbortSignal): Promise<HttpStream> {
    const controller = new AbortController()
    this.#streams.add(controller)
    const abort = (): void => controller.abort(signal.reason)
    signal.addEventListener('abort', abort)
    const done = (): void => {
      signal.removeEventListener('abort', abort)
      this.#streams.delete(controller)
    }
    try {
      if (signal.aborted) abort()
      const reply = await this.#within(call.timeoutMs, controller, () =>
        this.#request(this.current, call, controller.signal),
      )
      return { status: reply.status, text: pieces(reply.body, done) }
    } catch (error) {
      done()
      throw error
    }
  }

  /** Requests that still wait for an answer reject at once. */
  close(): void {
    this.#closed = true
    this.#deadlines.close()
    for (const controller of this.#streams) controller.abort(new Error('this engine is closed'))
    this.#transport.close()
  }

  async #sendTo(url: string, call: HttpCall): Promise<HttpReply> {
    const once = async (): Promise<HttpReply> => {
      const controller = new AbortController()
      const abort = (): void => controller.abort(call.signal?.reason)
      call.signal?.addEventListener('abort', abort)
      try {
        return await this.#within(call.timeoutMs, controller, async () => {
          const { status, headers, body } = await this.#request(url, call, controller.signal)
          let text = ''
          for await (const piece of pieces(body)) text = shortOrThrow(text + piece)
          return { status, headers, text }
        })
      } finally {
        call.signal?.removeEventListener('abort', abort)
      }
    }
    try {
      return await once()
    } catch (error) {
      // Most likely the server closed an idle connection just as we used it again.
      if (isBroken(error) && !this.#closed) return once()
      throw error
    }
  }

  async #request(url: string, { method, path, headers, body }: HttpCall, signal: AbortSignal): Promise<FetchReply> {
    if (this.#closed) throw new Error('this engine is closed')
    return this.#transport.fetch(url + path, { method, headers, signal, ...given({ body }) })
  }

  /** The deadline holds for a `fetch` that ignores its signal, too. */
  #within<T>(timeoutMs: number, controller: AbortController, work: () => Promise<T>): Promise<T> {
    const silence = (): Error => {
      const error = new NoAnswerError(timeoutMs)
      controller.abort(error)
      return error
    }
    return inTime(work(), this.#deadlines, timeoutMs, { silence })
  }
}

async function* pieces(body: AsyncIterable<Uint8Array> | null, done?: () => void): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  try {
    if (body === null) return
    for await (const piece of body) yield decoder.decode(piece, { stream: true })
  } finally {
    done?.()
  }
}

/** The message of the system or of TLS, which a `fetch` hides in the cause. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return messageOf(error)
  if (error.cause instanceof Error) return reasonOf(error.cause)
  // All addresses of a name failed: the message is empty.
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0])
  return error.message === '' ? codeOf(error) : error.message
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? error.name
}

function isBroken(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'].includes(codeOf(error))) return true
  return isBroken(error.cause)
}
