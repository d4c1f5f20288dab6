import type { History } from '../sim/history.ts'

const MESSAGES = new Set(['send', 'exec', 'heard'])
const QUIET = new Set(['setup', 'start', 'call', 'return', 'attempt', 'until', 'stamped', 'blank', 'dropped', 'read'])
/** So much room have all messages together: where they are many, they are drawn closer. */
const ROOM = 220

/**
 * From true time to places on the picture and back. Messages take a millisecond and pauses take seconds: where nothing happens for
 * long, time is drawn shorter.
 */
export class Scale {
  readonly #times: number[]
  readonly #places: number[]

  constructor(history: History) {
    const matters = new Map([[0, true]])
    for (const event of history.events) {
      if (QUIET.has(event.kind)) continue
      const isMessage = MESSAGES.has(event.kind)
      if (isMessage && 'what' in event && event.what === 'extend') continue
      const time = Math.round(event.at * 10) / 10
      matters.set(time, !isMessage || matters.get(time) === true)
      if (event.kind === 'pause') matters.set(Math.round(event.untilMs * 10) / 10, true)
    }
    this.#times = [...matters.keys()].sort((a, b) => a - b)
    this.#times.push(this.#times.at(-1)! + 100)
    const gaps = this.#times.map((time, index) => Math.log1p(time - (this.#times[index - 1] ?? 0)))
    const isSmall = this.#times.map((time) => matters.get(time) === false)
    const all = gaps.reduce((sum, gap, index) => (isSmall[index] === true ? sum + gap : sum), 0)
    const closer = Math.min(1, ROOM / all)
    let place = 0
    this.#places = gaps.map((gap, index) => (place += isSmall[index] === true ? gap * closer : gap))
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
  const high = firstAfter(from, value)
  const low = high - 1
  return to[low]! + ((value - from[low]!) / (from[high]! - from[low]!)) * (to[high]! - to[low]!)
}

/** The index of the first number that is greater: of numbers in order. */
export function firstAfter(numbers: readonly number[], value: number): number {
  let low = 0
  let high = numbers.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (numbers[middle]! > value) high = middle
    else low = middle + 1
  }
  return low
}
