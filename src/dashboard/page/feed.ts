import type { Events } from '../protocol.ts'
import { address } from './address.ts'
import { after } from './clock.ts'

/** `catching up`: the server is there, but what it holds is not yet all here. */
export type FeedState = 'connecting' | 'catching up' | 'live' | 'waiting'

export interface Listener {
  connection(state: FeedState): void
  event<K extends keyof Events>(name: K, data: Events[K]): void
}

const NAMES: readonly (keyof Events)[] = ['hello', 'engines', 'leases', 'nodes', 'findings', 'trouble', 'beat']
const FIRST_RETRY_MS = 500
/** Soon enough for a person who waits; 200 waiting pages are still a small load. */
const LAST_RETRY_MS = 8_000
/** Two beats of the server and some: a line that was cut without a word (a proxy, a laptop that slept) is silent too. */
const SILENCE_MS = 40_000

/**
 * Listens to the server for as long as the page is open. The browser's own way of connecting again is not used: it
 * gives up for good at the first answer that is no stream, such as a proxy's 502 while the server restarts.
 */
export class Feed {
  readonly #listener: Listener
  #source: EventSource | undefined
  #cancelRetry = (): void => {}
  #cancelSilence = (): void => {}
  #retryMs = FIRST_RETRY_MS

  constructor(listener: Listener) {
    this.#listener = listener
    // A laptop that wakes up should not wait for the rest of a pause.
    addEventListener('online', () => this.#hurry())
    document.addEventListener('visibilitychange', () => document.hidden || this.#hurry())
  }

  open(): void {
    this.#cancelRetry()
    this.#listener.connection('connecting')
    const source = new EventSource(address('events'))
    this.#source = source
    this.#awaitNext(source)
    for (const name of NAMES) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        this.#awaitNext(source)
        this.#hear(name, JSON.parse(event.data) as Events[typeof name])
      })
    }
    source.addEventListener('error', () => {
      // Closed by an answer that is no stream. If it was "log in first", the page's own address says so too.
      const answered = source.readyState === EventSource.CLOSED
      this.#lose(source)
      if (answered) void logInIfAsked()
    })
  }

  #hear<K extends keyof Events>(name: K, data: Events[K]): void {
    if (name === 'hello') {
      this.#retryMs = FIRST_RETRY_MS
      this.#listener.connection('catching up')
    }
    this.#listener.event(name, data)
    if (name === 'leases' && !(data as Events['leases']).more) this.#listener.connection('live')
  }

  #awaitNext(source: EventSource): void {
    this.#cancelSilence()
    this.#cancelSilence = after(SILENCE_MS, () => this.#lose(source))
  }

  #lose(source: EventSource): void {
    source.close()
    if (this.#source !== source) return
    this.#source = undefined
    this.#cancelSilence()
    this.#listener.connection('waiting')
    this.#cancelRetry = after(this.#retryMs, () => this.open())
    this.#retryMs = Math.min(LAST_RETRY_MS, this.#retryMs * 2)
  }

  #hurry(): void {
    if (this.#source === undefined) this.open()
  }
}

async function logInIfAsked(): Promise<void> {
  const answer = await fetch('./', { cache: 'no-store' }).catch(() => undefined)
  if (answer?.status === 401) location.reload()
}
