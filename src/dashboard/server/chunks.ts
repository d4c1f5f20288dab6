import type { Clock } from '../../clock.ts'
import type { Board, KnownLease } from './board.ts'
import type { Events, LeaseChanges } from '../protocol.ts'

/** An event as bytes, made once for all pages. */
export interface Chunk {
  readonly size: number
  bytes(): Uint8Array
}

/** For this long after it was made, an event can be sent as it is: nobody sees the difference on a bar. */
const FRESH_MS = 20
/** Rows in one event of a snapshot: less than a millisecond's work to make, so that others get their turn in between. */
const ROWS_A_PART = 500

/** Makes events, and numbers them. */
export class Chunks {
  readonly #clock: Clock
  #lastId = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  event<Name extends Exclude<keyof Events, 'leases'>>(name: Name, data: Events[Name]): Chunk {
    const bytes = Buffer.from(`${this.#head(name)}data: ${JSON.stringify(data)}\n\n`)
    return { size: bytes.length, bytes: () => bytes }
  }

  /** Its times are of now. A sender that sends it later says how much later; the rest is the same for all. */
  leases(changes: Omit<LeaseChanges, 'agoMs'>): Chunk {
    const madeMs = this.#clock.monotonicMs()
    const head = this.#head('leases')
    const body = `data: ${JSON.stringify(changes).slice(1)}\n\n`
    const fresh = Buffer.from(`${head}data: {"agoMs":0,\n${body}`)
    return {
      size: fresh.length,
      bytes: () => {
        const agoMs = Math.round(this.#clock.monotonicMs() - madeMs)
        if (agoMs < FRESH_MS) return fresh
        const start = fresh.length - Buffer.byteLength(body)
        return Buffer.concat([Buffer.from(`${head}data: {"agoMs":${agoMs},\n`), fresh.subarray(start)])
      },
    }
  }

  #head(name: string): string {
    return `id: ${++this.#lastId}\nevent: ${name}\n`
  }
}

/** An event and not a comment: a browser does not pass comments on to the page, which could not notice their absence. */
export const HEARTBEAT: Chunk = chunkOf('event: beat\ndata: {}\n\n')
/** A browser that lost us tries again so soon. */
export const GREETING: Chunk = chunkOf('retry: 1000\n\n')

function chunkOf(text: string): Chunk {
  const bytes = Buffer.from(text)
  return { size: bytes.length, bytes: () => bytes }
}

/**
 * All leases at one moment, in parts that are made when they are sent: pages that come at the same time share them. A row
 * that changes meanwhile is sent as it is by then, and the change comes behind it once more, which does no harm.
 */
export class Snapshot {
  readonly #board: Board
  readonly #chunks: Chunks
  readonly #rows: readonly KnownLease[]
  #made: Chunk[] | undefined = []

  constructor(board: Board, chunks: Chunks) {
    this.#board = board
    this.#chunks = chunks
    this.#rows = board.rows()
  }

  *parts(): Iterator<Chunk, undefined> {
    const count = Math.max(1, Math.ceil(this.#rows.length / ROWS_A_PART))
    for (let index = 0; index < count; index++) yield this.#made?.[index] ?? this.#make(index, index + 1 < count)
    return undefined
  }

  /** There is a newer one: those who still read this one get what they need, but nothing is kept for them. */
  retire(): void {
    this.#made = undefined
  }

  #make(index: number, more: boolean): Chunk {
    const rows = this.#rows.slice(index * ROWS_A_PART, (index + 1) * ROWS_A_PART)
    const set = rows.map((row) => this.#board.row(row))
    const chunk = this.#chunks.leases({ reset: index === 0, more, set, ends: [], gone: [] })
    if (this.#made !== undefined) this.#made[index] = chunk
    return chunk
  }
}
