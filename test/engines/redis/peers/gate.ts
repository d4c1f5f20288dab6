import { connect, createServer, type Socket } from 'node:net'
import { onFreePorts } from '../../../../harness/ports.ts'

/**
 * A TCP proxy that keeps chosen traffic back until it is told to let it go. "This arrives after that" then needs no
 * delay to guess: hold it, wait until it is held, do the other thing, open.
 */
export interface Gate extends AsyncDisposable {
  /** `redis://` address of the gate. */
  readonly url: string
  /** Connections on which something is kept back now. */
  readonly held: number
  /** From now on such a request waits, and all that follows it on its connection. */
  holdRequests(such: Such): void
  /** From now on such a request passes, and what its connection is answered from then on waits. */
  holdReplies(such: Such): void
  /** Lets everything go, in order, and holds nothing any more. */
  open(): void
}

/** Looks at what a client sends: a text that it contains, or more than that. */
export type Such = string | ((request: string) => boolean)

interface Rule {
  fits(request: string): boolean
  readonly direction: 'requests' | 'replies'
}

export async function startGate(targetPort: number): Promise<Gate> {
  const links = new Set<Link>()
  let rule: Rule | undefined
  const server = createServer((client) => {
    const link = new Link(client, connect(targetPort, '127.0.0.1'), () => rule)
    links.add(link)
    client.on('close', () => links.delete(link))
  })
  const port = await onFreePorts(1, async ([free = 0]) => {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(free, '127.0.0.1', resolve))
    return free
  })
  return {
    url: `redis://127.0.0.1:${port}`,
    get held() {
      return [...links].filter(({ holds }) => holds).length
    },
    holdRequests: (such) => void (rule = { fits: fits(such), direction: 'requests' }),
    holdReplies: (such) => void (rule = { fits: fits(such), direction: 'replies' }),
    open() {
      rule = undefined
      for (const link of links) link.open()
    },
    async [Symbol.asyncDispose]() {
      server.close()
      for (const link of links) link.end()
    },
  }
}

function fits(such: Such): (request: string) => boolean {
  return typeof such === 'string' ? (request) => request.includes(such) : such
}

/** One client's connection and its continuation to the server. */
class Link {
  readonly #client: Socket
  readonly #server: Socket
  readonly #rule: () => Rule | undefined
  /** What is shut, and what has come since. */
  #shut: { readonly direction: Rule['direction']; readonly pieces: Buffer[] } | undefined

  constructor(client: Socket, server: Socket, rule: () => Rule | undefined) {
    this.#client = client.setNoDelay()
    this.#server = server.setNoDelay()
    this.#rule = rule
    this.#pump(client, server, 'requests')
    this.#pump(server, client, 'replies')
  }

  get holds(): boolean {
    return this.#shut !== undefined && this.#shut.pieces.length > 0
  }

  open(): void {
    const shut = this.#shut
    this.#shut = undefined
    const to = shut?.direction === 'requests' ? this.#server : this.#client
    for (const piece of shut?.pieces ?? []) to.write(piece)
  }

  end(): void {
    this.#client.destroy()
    this.#server.destroy()
  }

  #pump(from: Socket, to: Socket, direction: Rule['direction']): void {
    from.on('data', (piece: Buffer) => {
      const rule = this.#rule()
      if (direction === 'requests' && rule?.fits(piece.toString()) === true) {
        this.#shut ??= { direction: rule.direction, pieces: [] }
      }
      if (this.#shut?.direction === direction) this.#shut.pieces.push(piece)
      else to.write(piece)
    })
    from.on('error', () => this.end())
    from.on('close', () => this.end())
  }
}
