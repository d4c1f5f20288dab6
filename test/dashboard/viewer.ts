import type { Dashboard } from '../../src/dashboard/index.ts'
import type { Events, LeaseRow } from '../../src/dashboard/protocol.ts'
import { until } from '../../harness/until.ts'

interface Shown extends LeaseRow {
  /** On our own clock. */
  readonly endsAtMs: number | null
}

export interface Heard {
  readonly id: string | undefined
  readonly name: keyof Events
  readonly data: unknown
}

/** What a browser does with the events, without a browser. */
export class Viewer implements AsyncDisposable {
  /** By key. */
  readonly rows = new Map<string, Shown>()
  readonly heard: Heard[] = []
  readonly response: Response
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #ended: Promise<void>
  beats = 0
  bytes = 0
  hasSnapshot = false
  isOver = false

  constructor(response: Response) {
    this.response = response
    this.#reader = response.body!.getReader()
    this.#ended = this.#read()
  }

  static async open(page: Dashboard, headers: Record<string, string> = {}, path = ''): Promise<Viewer> {
    return new Viewer(await ask(page, `${path}/events`, { headers }))
  }

  last<Name extends keyof Events>(name: Name): Events[Name] | undefined {
    return this.heard.findLast((event) => event.name === name)?.data as Events[Name] | undefined
  }

  async has<Name extends keyof Events>(name: Name): Promise<Events[Name]> {
    return until(() => this.last(name), { what: `an event ${name}`, withinMs: 20_000 })
  }

  /** Waits until the row is there and as wanted. */
  async sees(resource: string, isWanted: (row: Shown) => boolean = () => true): Promise<Shown> {
    return until(
      () => {
        const row = this.rows.get(resource)
        return row !== undefined && isWanted(row) ? row : undefined
      },
      { what: `${resource} on the page`, withinMs: 20_000 },
    )
  }

  async misses(resource: string): Promise<void> {
    await until(() => this.hasSnapshot && !this.rows.has(resource), { what: `${resource} gone`, withinMs: 20_000 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reader.cancel()
    await this.#ended
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder()
    let text = ''
    for (let piece = await this.#reader.read(); !piece.done; piece = await this.#reader.read()) {
      this.bytes += piece.value.length
      text += decoder.decode(piece.value, { stream: true })
      const blocks = text.split('\n\n')
      text = blocks.pop()!
      for (const block of blocks) this.#take(block)
    }
    this.isOver = true
  }

  #take(block: string): void {
    const lines = block.split('\n')
    const field = (name: string): string[] =>
      lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2))
    const [name] = field('event') as (keyof Events)[]
    if (name === undefined) return
    if (name === 'beat') this.beats++
    const data = JSON.parse(field('data').join('\n')) as unknown
    this.heard.push({ id: field('id')[0], name, data })
    if (name === 'leases') this.#show(data as Events['leases'])
  }

  #show({ agoMs, reset, more, set, ends, gone }: Events['leases']): void {
    const now = performance.now() - agoMs
    if (reset) this.rows.clear()
    for (const row of set)
      this.rows.set(row.key ?? row.resource, { ...row, endsAtMs: row.endsInMs === null ? null : now + row.endsInMs })
    for (const [key, endsInMs] of ends) {
      const row = this.rows.get(key)!
      this.rows.set(key, { ...row, endsInMs, endsAtMs: endsInMs === null ? null : now + endsInMs })
    }
    for (const key of gone) this.rows.delete(key)
    if (!more) this.hasSnapshot = true
  }
}

export type Asked = RequestInit & { remoteAddress?: string }

/** A request as from this machine. */
export function ask(
  page: Dashboard,
  path: string,
  { remoteAddress = '127.0.0.1', ...init }: Asked = {},
): Promise<Response> {
  return page.fetch(new Request(`http://localhost:7464${path}`, init), { remoteAddress })
}

/** As the page itself sends it. */
export function post(
  page: Dashboard,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  return ask(page, path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: 'http://localhost:7464', ...headers },
    body: JSON.stringify(body),
  })
}
