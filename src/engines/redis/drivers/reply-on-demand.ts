/**
 * What a driver hands out for a command that calls back. Nobody waits for it but who traces commands, so it becomes a promise only
 * when its outcome is asked for. Most commands then need none.
 */
export class ReplyOnDemand {
  readonly #onAsked: (() => void) | undefined
  #promise: Promise<unknown> | undefined
  #settle: (() => void) | undefined
  #isSettled = false
  #error: unknown
  #reply: unknown

  constructor(onAsked?: () => void) {
    this.#onAsked = onAsked
  }

  settle(error: unknown, reply: unknown): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#error = error
    this.#reply = reply
    this.#settle?.()
  }

  // It stands in for a promise.
  // oxlint-disable-next-line unicorn/no-thenable
  then(onReply?: (reply: unknown) => unknown, onError?: (error: unknown) => unknown): Promise<unknown> {
    this.#promise ??= this.#promised()
    return this.#promise.then(onReply, onError)
  }

  catch(onError?: (error: unknown) => unknown): Promise<unknown> {
    return this.then(undefined, onError)
  }

  finally(onSettled?: () => void): Promise<unknown> {
    return this.then(undefined).finally(onSettled)
  }

  #promised(): Promise<unknown> {
    this.#onAsked?.()
    return new Promise((resolve, reject) => {
      this.#settle = () => (this.#error === undefined ? resolve(this.#reply) : reject(this.#error))
      if (this.#isSettled) this.#settle()
    })
  }
}

/** What somebody made of it before it came back. That one has heard of a failure by the command, so nobody else needs to. */
export function hush(answer: unknown): void {
  Promise.resolve(answer).catch(() => undefined)
}
