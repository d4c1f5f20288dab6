import { Agent, request } from 'node:http'
import { text } from 'node:stream/consumers'
import type { Fetch } from '../../src/engines/etcd/index.ts'
import type { Reply } from '../../sim/redis.ts'
import type { Courier, Words } from '../courier.ts'

export interface HttpAsked {
  readonly method: string
  readonly path: string
  readonly body: string
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  readonly text: string
}

export interface HttpWords {
  readonly words: readonly Words[]
  readonly replies: (answer: HttpAnswer) => readonly Reply[]
}

/**
 * A `fetch` whose requests are carried. `visit` makes one on the server. A request that the server would hold until something
 * happens is refused at once: its answer would come in real time.
 */
export function carriedFetch(
  courier: Courier,
  how: {
    inWords(asked: HttpAsked): HttpWords
    visit(asked: HttpAsked): Promise<HttpAnswer>
    waits(asked: HttpAsked): boolean
  },
): Fetch {
  return async (url, { method, body = '', signal }) => {
    const { pathname, search } = new URL(url)
    const asked = { method, path: pathname + search, body }
    if (how.waits(asked)) throw broken('connect ECONNREFUSED 127.0.0.1', 'ECONNREFUSED')
    const { status, headers, text } = await courier.carry({
      ...how.inWords(asked),
      visit: () => how.visit(asked),
      refusals: () => [],
      broken: () => broken('read ECONNRESET', 'ECONNRESET'),
      signal,
    })
    return { status, headers, body: piecesOf(text) }
  }
}

const agent = new Agent({ keepAlive: true })

/** Makes a request on a server: the same bytes as by `fetch`, at a third of its cost. */
export function ask(url: string, { method, path, body }: HttpAsked): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const asked = request(url + path, { method, agent }, (reply) => {
      const { statusCode: status = 0, headers } = reply
      text(reply).then(
        (read) =>
          resolve({ status, headers: { get: (name) => headers[name.toLowerCase()]?.toString() ?? null }, text: read }),
        reject,
      )
    })
    asked.on('error', reject)
    asked.end(body)
  })
}

async function* piecesOf(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text)
}

function broken(message: string, code: string): Error {
  return new TypeError('fetch failed', { cause: Object.assign(new Error(message), { code }) })
}
