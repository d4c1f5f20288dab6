import type { Random } from '../src/random.ts'

/**
 * Numbers from a seed (sfc32). Everything that is drawn has a generator of its own, forked by a name, so that leaving out
 * one fault does not change what happens elsewhere: that is what makes a schedule shrink.
 */
export class Seeded implements Random {
  readonly #seed: string
  #a: number
  #b: number
  #c: number
  #d = 1

  constructor(seed: string) {
    this.#seed = seed
    const next = hashes(seed)
    this.#a = next()
    this.#b = next()
    this.#c = next()
    for (let round = 0; round < 12; round++) this.#next()
  }

  fork(name: string | number): Seeded {
    return new Seeded(`${this.#seed}/${name}`)
  }

  fraction(): number {
    return this.#next() / 2 ** 32
  }

  id(): string {
    return [0, 0, 0, 0].map(() => this.#next().toString(16).padStart(8, '0')).join('')
  }

  chance(probability: number): boolean {
    return this.fraction() < probability
  }

  /** A whole number, both ends included. */
  int(from: number, to: number): number {
    return from + Math.floor(this.fraction() * (to - from + 1))
  }

  between(from: number, to: number): number {
    return from + this.fraction() * (to - from)
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.int(0, choices.length - 1)]!
  }

  shuffle<T>(items: readonly T[]): T[] {
    const shuffled = [...items]
    for (let at = shuffled.length - 1; at > 0; at--) {
      const other = this.int(0, at)
      ;[shuffled[at], shuffled[other]] = [shuffled[other]!, shuffled[at]!]
    }
    return shuffled
  }

  #next(): number {
    const sum = (this.#a + this.#b + this.#d) | 0
    this.#d = (this.#d + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    this.#c |= 0
    return sum >>> 0
  }
}

/** Well-spread 32-bit numbers from a text. */
function hashes(text: string): () => number {
  let hash = 1779033703 ^ text.length
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 3432918353)
    hash = (hash << 13) | (hash >>> 19)
  }
  return () => {
    hash = Math.imul(hash ^ (hash >>> 16), 2246822507)
    hash = Math.imul(hash ^ (hash >>> 13), 3266489909)
    hash ^= hash >>> 16
    return hash >>> 0
  }
}
