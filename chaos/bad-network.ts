import { cut, lose, slow, type Path } from '../harness/faults/network.ts'
import type { Proxy } from '../harness/faults/proxy.ts'
import type { Seeded } from '../sim/random.ts'
import type { Target } from './arena.ts'
import { seconds, type Fault } from './deck.ts'

/** The kernel sends again what was lost, after pauses that double; after 3 s the next one is about as long. */
const RESEND_MS = 4000

/** What the nemesis does to the ways between clients and servers, and between servers. */
export class BadNetwork {
  readonly #random: Seeded
  readonly #goesDown: (target: Target) => (afterMs?: number) => void
  /** There is one slow line. */
  #isSlow = false

  /** `goesDown` notes an outage, and returns what ends it. */
  constructor(random: Seeded, goesDown: (target: Target) => (afterMs?: number) => void) {
    this.#random = random
    this.#goesDown = goesDown
  }

  async cut(target: Target, how: 'both' | 'half' | 'answers'): Promise<Fault> {
    const end = this.#goesDown(target)
    const forMs = this.#random.between(500, 3000)
    const ways = how === 'half' ? [this.#random.pick<Proxy>(target.ways)] : target.ways
    for (const way of ways) {
      way.dropReplies(true)
      way.dropRequests(how !== 'answers')
    }
    const what = {
      both: 'cut off',
      half: 'cut off from half of the clients',
      answers: 'gets requests, answers are lost',
    }
    return {
      what: `${target.name} ${what[how]} for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        for (const way of ways) {
          // What was in between is missing in the stream, so the connections can't be used again.
          way.reset()
          way.dropReplies(false)
          way.dropRequests(false)
        }
        end()
      },
    }
  }

  /** Longer than a client waits for an answer, now and then. */
  async delay(target: Target): Promise<Fault> {
    const end = this.#goesDown(target)
    const [delayMs, forMs] = [this.#random.between(50, 1000), this.#random.between(500, 3000)]
    for (const way of target.ways) way.delay(delayMs)
    return {
      what: `${target.name}: requests and answers delayed by ${seconds(delayMs)} for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        for (const way of target.ways) way.delay(0)
        // What was sent last is still held back.
        end(2 * delayMs)
      },
    }
  }

  /** As a network does it: nobody is told, and connections go on afterwards as soon as something is sent again. */
  async partition(targets: readonly Target[], paths: readonly Path[], what: string): Promise<Fault> {
    return this.#disturb(targets, cut(paths), `the network: ${what}`)
  }

  lose(targets: readonly Target[]): Fault {
    const percent = Math.round(this.#random.between(5, 40))
    return this.#disturb(targets, lose(targets.flatMap(toAndFrom), percent), `${percent} % of packets lost`)
  }

  /** Undefined while there is a slow line already. */
  slow(targets: readonly Target[]): Fault | undefined {
    if (this.#isSlow) return undefined
    const [bytesPerSecond, mostMs] = [this.#random.between(10_000, 100_000), this.#random.between(100, 800)]
    const heal = slow(targets.flatMap(toAndFrom), { bytesPerSecond, mostMs })
    this.#isSlow = true
    const healed = (): void => {
      heal()
      this.#isSlow = false
    }
    return this.#disturb(targets, healed, `packets delayed by up to ${seconds(mostMs)}`)
  }

  #disturb(targets: readonly Target[], heal: () => void, what: string): Fault {
    const ends = targets.map((target) => this.#goesDown(target))
    const forMs = this.#random.between(500, 3000)
    return {
      what: `${targets.map(({ name }) => name).join(', ')}: ${what}, for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        heal()
        for (const end of ends) end(RESEND_MS)
      },
    }
  }
}

export function toAndFrom({ server }: Target): Path[] {
  return [{ to: server }, { from: server }]
}

export function pathOf({ server: from }: Target, { server: to }: Target): Path {
  return { from, to }
}
