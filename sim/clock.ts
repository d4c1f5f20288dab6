import { endOfTurn } from '../src/clock.ts'

/**
 * True time, which nobody in the simulation sees, and the clocks of its machines, which is all they see. One event happens
 * at a time; before the next one, every promise that can settle has done so.
 */
interface Event {
  readonly atMs: number
  /** Of events at the same time, lower ones first; then in the order in which they were made. */
  readonly rank: number
  readonly order: number
  readonly run: () => void
}

/** This many events without time going by are a loop that never ends. */
const MOST_AT_ONCE = 20_000

export class Time {
  nowMs = 0
  /** Waits until every promise that can settle has done so. */
  settle: () => Promise<void> = settled
  readonly #heap: Event[] = []
  #made = 0
  #touched = false
  #awaited: Promise<unknown>[] = []
  #atOnce = 0

  at(atMs: number, run: () => void, rank = 1): void {
    const event: Event = { atMs: Math.max(atMs, this.nowMs), rank, order: this.#made++, run }
    const heap = this.#heap
    let at = heap.push(event) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!isBefore(event, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = event
  }

  after(delayMs: number, run: () => void): void {
    this.at(this.nowMs + delayMs, run)
  }

  /** Code with promises runs in this event: they are to settle before the next one. */
  touch(): void {
    this.#touched = true
  }

  /** This event takes as long as that, and no time: something real is asked, and true time stands still until it has answered. */
  hold(work: Promise<unknown>): void {
    this.#awaited.push(work)
  }

  /** Runs events until that time, or until `isDone`. */
  async run(untilMs: number, isDone: () => boolean = () => false): Promise<void> {
    await this.settle()
    while (!isDone()) {
      const event = this.#heap[0]
      if (event === undefined || event.atMs > untilMs) break
      this.#pop()
      this.#atOnce = event.atMs > this.nowMs ? 0 : this.#atOnce + 1
      if (this.#atOnce > MOST_AT_ONCE) throw new Error(`time stands still at ${this.nowMs} ms`)
      this.nowMs = event.atMs
      event.run()
      while (this.#awaited.length > 0) await Promise.all(this.#awaited.splice(0))
      if (!this.#touched) continue
      this.#touched = false
      await this.settle()
    }
    if (!isDone() && untilMs > this.nowMs) this.nowMs = untilMs
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()!
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++
      if (!isBefore(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
  }
}

function isBefore(a: Event, b: Event): boolean {
  if (a.atMs !== b.atMs) return a.atMs < b.atMs
  return a.rank === b.rank ? a.order < b.order : a.rank < b.rank
}

/**
 * Every promise that can settle has done so: the queue of ticks is looked at when no microtask is left. An immediate would
 * do as well, and costs a turn of the event loop for every event of the simulation.
 */
function settled(): Promise<void> {
  return new Promise((resolve) => {
    queueMicrotask(() => endOfTurn(resolve))
  })
}

/** 2023-11-14: an hour like any other, and far from zero. */
const EPOCH_MS = 1_700_000_000_000

/** A machine's clock: runs a little fast or slow, and its wall clock may be set. */
export class MachineClock {
  rate: number
  readonly #time: Time
  #sinceMs = 0
  #monotonicMs: number
  /** What the wall clock shows beyond the monotonic one. */
  #aheadMs: number

  constructor(time: Time, options: { rate?: number; aheadMs?: number; monotonicMs?: number } = {}) {
    this.#time = time
    this.rate = options.rate ?? 1
    this.#monotonicMs = options.monotonicMs ?? 5_000_000
    this.#aheadMs = EPOCH_MS + (options.aheadMs ?? 0) - this.#monotonicMs
  }

  /** Where the clocks stand at a true time, now unless another is given. */
  monotonicMs(atMs = this.#time.nowMs): number {
    return this.#monotonicMs + (atMs - this.#sinceMs) * this.rate
  }

  wallMs(atMs = this.#time.nowMs): number {
    // Microseconds, as servers tell them.
    return Math.round((this.#aheadMs + this.monotonicMs(atMs)) * 1000) / 1000
  }

  /** Somebody sets the wall clock. */
  jump(ms: number): void {
    this.#aheadMs += ms
  }

  /** From now on the clock runs at another speed. */
  drift(rate: number): void {
    this.#monotonicMs = this.monotonicMs()
    this.#sinceMs = this.#time.nowMs
    this.rate = rate
  }
}
