import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Fetch, FetchReply, Transport } from './transport.ts'

export interface Call {
  readonly method: 'GET' | 'PUT' | 'POST'
  /** Behind the endpoint's URL, with a slash. */
  readonly path: string
  readonly headers: Record<string, string>
  readonly body?: string
  /** How long one server may take. */
  readonly timeoutMs: number
  /** Nobody wants the answer any more. */
  readonly signal?: AbortSignal
}

export interface Reply {
  readonly status: number
  readonly headers: FetchReply['headers']
  readonly text: string
}

export interface Stream {
  readonly status: number
  /** Pieces of text as they come; ends when the server ends it, throws when the connection breaks or the signal aborts. */
  readonly text: AsyncIterable<string>
}

/** Why a server can't serve this now although it answers; another one may. */
export type Unfit = (reply: Reply) => string | undefined

/** No server could be asked, or each was unfit: says of every one why. */
export class NoServerError extends Error {
  constructor(failures: readonly { readonly url: string; readonly why: string }[]) {
    super(failures.map(({ url, why }) => `${url}: ${why}`).join('; '))
    this.name = 'NoServerError'
  }
}

/**
 * Servers of which any can answer. The one that answered last is asked first; one that does not answer in time, or says
 * that it can't, is left for the next. So a request may reach two servers, and everything that is sent must bear that.
 */
export class Endpoints {
  readonly urls: readonly string[]
  readonly #fetch: Fetch
  readonly #transport: Transport
  readonly #deadlines: Deadlines
  readonly #streams = new Set<AbortController>()
  #current = 0
  #closed = false

  constructor(urls: readonly string[], transport: Transport, clock: Clock) {
    this.urls = urls
    this.#fetch = transport.fetch
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

  async send(call: Call, unfit: Unfit): Promise<Reply> {
    const failures: { url: string; why: string }[] = []
    const first = this.#current
    for (let turn = 0; turn < this.urls.length; turn++) {
      call.signal?.throwIfAborted()
      const index = (first + turn) % this.urls.length
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
        // Not the server's fault.
        call.signal?.throwIfAborted()
        failures.push({ url, why: reasonOf(error) })
      }
      // Others may have moved on meanwhile.
      if (this.#current === index) this.#current = (index + 1) % this.urls.length
    }
    throw new NoServerError(failures)
  }

  /** One server, this one: for questions about itself. */
  async ask(url: string, call: Call): Promise<Reply> {
    try {
      return await this.#sendTo(url, call)
    } catch (error) {
      throw new NoServerError([{ url, why: reasonOf(error) }])
    }
  }

  /** An answer without an end, from the current server; its beginning has the call's deadline. */
  async open(call: Call, signal: AbortSignal): Promise<Stream> {
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

  /** Whoever still waits for an answer is told at once that there will be none. */
  close(): void {
    this.#closed = true
    this.#deadlines.close()
    for (const controller of this.#streams) controller.abort(new Error('closed'))
    this.#transport.close()
  }

  async #sendTo(url: string, call: Call): Promise<Reply> {
    const once = async (): Promise<Reply> => {
      const controller = new AbortController()
      const abort = (): void => controller.abort(call.signal?.reason)
      call.signal?.addEventListener('abort', abort)
      try {
        return await this.#within(call.timeoutMs, controller, async () => {
          const { status, headers, body } = await this.#request(url, call, controller.signal)
          let text = ''
          for await (const piece of pieces(body)) text += piece
          return { status, headers, text }
        })
      } finally {
        call.signal?.removeEventListener('abort', abort)
      }
    }
    try {
      return await once()
    } catch (error) {
      // Most likely a connection that the server closed while it was idle, as we were about to use it again.
      if (isBroken(error) && !this.#closed) return once()
      throw error
    }
  }

  async #request(url: string, { method, path, headers, body }: Call, signal: AbortSignal): Promise<FetchReply> {
    if (this.#closed) throw new Error('closed')
    return this.#fetch(url + path, { method, headers, signal, ...(body === undefined ? {} : { body }) })
  }

  /** The deadline holds also for a `fetch` that does not care about its signal. */
  async #within<T>(timeoutMs: number, controller: AbortController, work: () => Promise<T>): Promise<T> {
    let deadline: { cancel(): void } | undefined
    const late = new Promise<never>((_resolve, reject) => {
      deadline = this.#deadlines.start(timeoutMs, () => {
        const error = new Error(`no answer within ${timeoutMs} ms`)
        reject(error)
        controller.abort(error)
      })
    })
    try {
      return await Promise.race([work(), late])
    } finally {
      deadline?.cancel()
    }
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

/** The system's or TLS's own words; a `fetch` hides them in the cause. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error.cause instanceof Error) return reasonOf(error.cause)
  // Several addresses of one name that all failed: the message is empty.
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
