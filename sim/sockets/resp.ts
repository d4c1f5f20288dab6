import { ServerError, type Reply } from '../redis.ts'

/** A message to a channel, or a word about a subscription: RESP3 marks them, RESP2 does not. */
export class Push {
  readonly items: readonly Reply[]

  constructor(items: readonly Reply[]) {
    this.items = items
  }
}

export function encodeReply(reply: Reply | Push, protocol: 2 | 3): string {
  if (reply instanceof Push) return `${protocol === 3 ? '>' : '*'}${list(reply.items, protocol)}`
  if (reply instanceof ServerError) return `-${reply.message}\r\n`
  if (reply === null) return protocol === 3 ? '_\r\n' : '$-1\r\n'
  if (typeof reply === 'number') return `:${reply}\r\n`
  if (typeof reply === 'string') return `$${Buffer.byteLength(reply)}\r\n${reply}\r\n`
  return `*${list(reply, protocol)}`
}

function list(items: readonly Reply[], protocol: 2 | 3): string {
  return `${items.length}\r\n${items.map((item) => encodeReply(item, protocol)).join('')}`
}

/** Puts commands together of the bytes that a client sends, in whatever pieces. */
export class CommandReader {
  #bytes = Buffer.alloc(0)

  read(chunk: Buffer): string[][] {
    this.#bytes = Buffer.concat([this.#bytes, chunk])
    const commands: string[][] = []
    for (let command = this.#next(); command !== undefined; command = this.#next()) commands.push(command)
    return commands
  }

  #next(): string[] | undefined {
    const words: string[] = []
    let at = 0
    const line = (): string | undefined => {
      const end = this.#bytes.indexOf('\r\n', at)
      if (end < 0) return undefined
      const text = this.#bytes.toString('utf8', at, end)
      at = end + 2
      return text
    }
    const head = line()
    if (head === undefined) return undefined
    if (!head.startsWith('*')) throw new Error(`expected a command, got ${head}`)
    for (let left = Number(head.slice(1)); left > 0; left--) {
      const length = Number(line()?.slice(1) ?? NaN)
      if (!(this.#bytes.length >= at + length + 2)) return undefined
      words.push(this.#bytes.toString('utf8', at, at + length))
      at += length + 2
    }
    this.#bytes = this.#bytes.subarray(at)
    return words
  }
}
