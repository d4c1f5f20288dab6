import type { History } from '../sim/history.ts'

const MESSAGES = new Set(['send', 'exec', 'heard'])
const QUIET = new Set(['setup', 'start', 'call', 'attempt', 'until', 'stamped', 'blank'])

/**
 * From true time to places on the picture and back. Messages take a millisecond and pauses take seconds: where nothing happens for
 * long, time is drawn shorter.
 */
export class Scale {
  readonly #times: number[]
  readonly #places: number[]

  constructor(history: History) {
    const times = new Set([0])
    for (const event of history.events) {
      if (QUIET.has(event.kind)) continue
      if (MESSAGES.has(event.kind) && 'what' in event && event.what === 'extend') continue
      times.add(Math.round(event.at * 10) / 10)
      if (event.kind === 'pause') times.add(Math.round(event.untilMs * 10) / 10)
    }
    this.#times = [...times].sort((a, b) => a - b)
    this.#times.push(this.#times.at(-1)! + 100)
    let place = 0
    this.#places = this.#times.map((time, index) => (place += Math.log1p(time - (this.#times[index - 1] ?? 0))))
  }

  get endMs(): number {
    return this.#times.at(-1)!
  }

  get length(): number {
    return this.#places.at(-1)!
  }

  placeOf(ms: number): number {
    return between(this.#times, this.#places, ms)
  }

  msAt(place: number): number {
    return between(this.#places, this.#times, place)
  }

  /** Times for the axis, so far apart. */
  marks(apart: number): number[] {
    const marks: number[] = []
    let last = -Infinity
    for (const [index, place] of this.#places.entries()) {
      if (place - last < apart) continue
      marks.push(this.#times[index]!)
      last = place
    }
    return marks
  }
}

function between(from: readonly number[], to: readonly number[], value: number): number {
  if (value <= from[0]!) return to[0]!
  if (value >= from.at(-1)!) return to.at(-1)!
  let low = 0
  let high = from.length - 1
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (from[middle]! <= value) low = middle
    else high = middle
  }
  return to[low]! + ((value - from[low]!) / (from[high]! - from[low]!)) * (to[high]! - to[low]!)
}
