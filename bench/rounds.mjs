import { loadavg } from 'node:os'

/**
 * What was measured, round by round, one figure a variant. The file of results keeps it, and every ratio is made from it: the
 * variants of a round share the machine's mood, so they are compared with each other, and the rounds' ratios are counted.
 */
export class Rounds {
  /** @type {string} */
  #figure
  /** @type {readonly string[]} */
  #names
  /** @type {{ at: string, load: number, values: (number | null)[] }[]} */
  #rounds = []

  /** @param {'µs a section' | 'sections a second' | 'client CPU' | 'busiest to least busy'} figure @param {readonly string[]} names */
  constructor(figure, names) {
    this.#figure = figure
    this.#names = names
  }

  /** As a file has kept them. */
  static from({ figure, columns, rows }) {
    const kept = new Rounds(figure, columns.slice(2))
    kept.#rounds = rows.map(([at, load, ...values]) => ({ at, load, values }))
    return kept
  }

  /** @param {ReadonlyMap<string, number | undefined>} values by name; who sat the round out is missing */
  add(values) {
    const at = new Date().toISOString().replace(/\.\d+/, '')
    const rounded = this.#names.map((name) => digits(values.get(name)))
    this.#rounds.push({ at, load: Math.round((loadavg()[0] ?? 0) * 100) / 100, values: rounded })
  }

  get names() {
    return this.#names
  }

  /** The median of one variant's own figures, with its bounds. */
  middle(name) {
    return middle(this.of(name))
  }

  /** Those of the rounds in which it took part. */
  of(name) {
    return this.#figures(name).filter((value) => value !== null)
  }

  /**
   * How many times as fast one was as another (or, of CPU, how many times as much it used): the median of the rounds' ratios,
   * and between which bounds the median lies with a probability of 95 %, if rounds are independent.
   */
  ratio(name, base) {
    const [ours, theirs] = [this.#figures(name), this.#figures(base)]
    const ratios = ours.flatMap((value, i) => {
      const other = theirs[i] ?? null
      if (value === null || other === null) return []
      return [this.#figure === 'µs a section' ? other / value : value / other]
    })
    return { ...middle(ratios), drift: drift(ratios) }
  }

  toJSON() {
    const rows = this.#rounds.map(({ at, load, values }) => [at, load, ...values])
    return { figure: this.#figure, columns: ['at', 'load', ...this.#names], rows }
  }

  #figures(name) {
    const index = this.#names.indexOf(name)
    return this.#rounds.map(({ values }) => values[index] ?? null)
  }
}

/** Four digits are more than the machine is good for. */
function digits(value) {
  return value === undefined || !Number.isFinite(value) ? null : Number(value.toPrecision(4))
}

/** The median, and between which bounds it lies with a probability of 95 %, if the values are independent. */
export function middle(values) {
  return { value: median(values), ...interval(values), rounds: values.length }
}

/** By the ranks of the sorted values; with fewer than six rounds there is nothing narrower than the extremes. */
function interval(values) {
  if (values.length === 0) return { low: NaN, high: NaN }
  const sorted = values.toSorted((a, b) => a - b)
  const reach = 0.98 * Math.sqrt(values.length)
  const low = Math.max(0, Math.floor(values.length / 2 - reach))
  return { low: sorted[low], high: sorted[values.length - 1 - low] }
}

/** The median of the last third to that of the first: far from 1, something was not warm yet, or the machine has changed. */
function drift(values) {
  const third = Math.floor(values.length / 3)
  return third < 10 ? undefined : median(values.slice(-third)) / median(values.slice(0, third))
}

/** Without the tenth at either end: what a stray stop of the machine can't move. */
export function trimmedMean(values) {
  const sorted = values.toSorted((a, b) => a - b)
  const cut = Math.floor(values.length / 10)
  const middle = sorted.slice(cut, values.length - cut)
  return middle.reduce((sum, value) => sum + value, 0) / middle.length
}

/** How far the middle half of the values lies apart, relative to the median. */
export function spread(values) {
  return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)
}

export function percentiles(values) {
  return { p50Ms: quantile(values, 0.5), p99Ms: quantile(values, 0.99) }
}

export function median(values) {
  return quantile(values, 0.5)
}

export function quantile(values, part) {
  if (values.length === 0) return NaN
  const sorted = values.toSorted((a, b) => a - b)
  const at = (sorted.length - 1) * part
  const low = Math.floor(at)
  const below = sorted[low]
  return below + ((sorted[low + 1] ?? below) - below) * (at - low)
}

/** In another order every time, by chance: nobody always follows the same neighbour. @template E @param {readonly E[]} entries */
export function shuffled(entries) {
  const order = [...entries]
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1))
    ;[order[i], order[j]] = [order[j], order[i]]
  }
  return order
}
