export interface ScoreRange {
  /** As Redis takes them: a number, `(` before one that is left out, `+inf` or `-inf`. */
  readonly from: string
  readonly to: string
  readonly withScores: boolean
  readonly most: number
}

/** The arguments of ZRANGEBYSCORE behind the key. */
export function rangeOf([from = '', to = '', ...options]: readonly string[]): ScoreRange {
  const withScores = options[0]?.toLowerCase() === 'withscores'
  const [limit, offset, most] = withScores ? options.slice(1) : options
  if (limit !== undefined && (limit.toLowerCase() !== 'limit' || offset !== '0'))
    throw new Error(`not modelled: ZRANGEBYSCORE … ${options.join(' ')}`)
  return { from, to, withScores, most: Number(most ?? Infinity) }
}

/** The sorted set of a key, as far as the scripts use one. Changes make a new one. */
export class SortedSet {
  readonly #scores: ReadonlyMap<string, number>

  constructor(scores: ReadonlyMap<string, number> = new Map()) {
    this.#scores = scores
  }

  get size(): number {
    return this.#scores.size
  }

  /** The arguments of ZADD behind the key: XX, GT, then scores and members. */
  add(args: readonly string[]): { next: SortedSet; count: number } {
    const flags = new Set<string>()
    let at = 0
    for (; /^[a-z]/i.test(args[at] ?? ''); at++) flags.add(args[at]!.toLowerCase())
    for (const flag of flags) if (flag !== 'xx' && flag !== 'gt') throw new Error(`not modelled: ZADD … ${flag}`)
    const scores = new Map(this.#scores)
    let changed = false
    for (; at < args.length; at += 2) {
      const [score, member] = [Number(args[at]), args[at + 1]!]
      const before = scores.get(member)
      if (before === undefined ? flags.has('xx') : flags.has('gt') && score <= before) continue
      changed ||= before !== score
      scores.set(member, score)
    }
    return { next: changed ? new SortedSet(scores) : this, count: scores.size - this.#scores.size }
  }

  remove(members: readonly string[]): { next: SortedSet; count: number } {
    const scores = new Map(this.#scores)
    for (const member of members) scores.delete(member)
    const count = this.#scores.size - scores.size
    return { next: count === 0 ? this : new SortedSet(scores), count }
  }

  range({ from, to, withScores, most }: ScoreRange): string[] {
    const isWithin = (score: number): boolean =>
      (from.startsWith('(') ? score > bound(from) : score >= bound(from)) &&
      (to.startsWith('(') ? score < bound(to) : score <= bound(to))
    return this.entries()
      .filter(([, score]) => isWithin(score))
      .slice(0, most)
      .flatMap(([member, score]) => (withScores ? [member, String(score)] : [member]))
  }

  score(member: string): string | null {
    const score = this.#scores.get(member)
    return score === undefined ? null : String(score)
  }

  /** The member with the highest score, and that. */
  last(): string[] {
    const [member, score] = this.entries().at(-1) ?? []
    return member === undefined ? [] : [member, String(score)]
  }

  /** By score, and by name where that is the same. */
  entries(): [string, number][] {
    return [...this.#scores].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1))
  }
}

function bound(text: string): number {
  const plain = text.replace('(', '')
  return plain === '+inf' ? Infinity : plain === '-inf' ? -Infinity : Number(plain)
}
