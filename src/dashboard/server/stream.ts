import type { Chunk } from './chunks.ts'

/** What a page may be behind: all of 10,000 leases changing at once is about 3 MB. */
const MOST_BEHIND_BYTES = 8 * 1024 * 1024

/**
 * The events of one open page. A page that does not read is not waited for and not stored for: beyond a bound it is cut
 * off, and gets a snapshot when it comes back.
 */
export class EventStream {
  readonly body: ReadableStream<Uint8Array>
  readonly #ended: () => void
  readonly #waiting: (Chunk | Iterator<Chunk, undefined>)[] = []
  #behindBytes = 0
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #wanted: (() => void) | undefined
  #sinceBeat = 0
  #isOver = false
  /** It has a snapshot, so that changes mean something to it. */
  isLive = false

  constructor(ended: () => void) {
    this.#ended = ended
    this.body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller
        },
        pull: () =>
          new Promise((resolve) => {
            this.#wanted = resolve
            this.#pump()
          }),
        cancel: () => this.#end(),
      },
      { highWaterMark: 1 },
    )
  }

  /** Bytes that wait to be read. */
  get behindBytes(): number {
    return this.#behindBytes
  }

  push(chunk: Chunk): void {
    if (this.#isOver) return
    this.#behindBytes += chunk.size
    if (this.#behindBytes > MOST_BEHIND_BYTES) return this.close()
    this.#waiting.push(chunk)
    this.#pump()
  }

  /** Parts are made when they are read, so they do not count as being behind. */
  pushParts(parts: Iterator<Chunk, undefined>): void {
    if (this.#isOver) return
    this.#waiting.push(parts)
    this.#pump()
  }

  /** Nothing was read for a whole beat although there was something. */
  beat(heartbeat: Chunk): void {
    const isStuck = this.#sinceBeat === 0 && this.#waiting.length > 0
    this.#sinceBeat = 0
    if (isStuck) this.close()
    else this.push(heartbeat)
  }

  close(): void {
    if (this.#isOver) return
    this.#controller?.close()
    this.#end()
  }

  #end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#waiting.length = 0
    this.#wanted?.()
    this.#wanted = undefined
    this.#ended()
  }

  #pump(): void {
    if (this.#wanted === undefined) return
    const chunk = this.#next()
    if (chunk === undefined) return
    const wanted = this.#wanted
    this.#wanted = undefined
    this.#sinceBeat++
    this.#controller!.enqueue(chunk.bytes())
    wanted()
  }

  #next(): Chunk | undefined {
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      if ('size' in first) {
        this.#waiting.shift()
        this.#behindBytes -= first.size
        return first
      }
      const { value } = first.next()
      if (value !== undefined) return value
      this.#waiting.shift()
    }
    return undefined
  }
}
