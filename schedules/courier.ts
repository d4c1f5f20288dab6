import type { Time } from '../sim/clock.ts'
import type { History } from '../sim/history.ts'
import type { Process } from '../sim/process.ts'
import type { Seeded } from '../sim/random.ts'
import type { Reply } from '../sim/redis.ts'
import type { FateName, Plan } from './plan.ts'

/** A request in words: which step of the protocol it is, and whose. */
export interface Words {
  readonly what: string
  readonly owner: string
  /** Whose lease is handed over to the owner. */
  readonly former?: string
}

export interface Request<T> {
  /** One, or those of a batch. */
  readonly words: readonly Words[]
  /** Which server, if there are several. */
  readonly node?: string
  /** Makes it, on the real server. */
  visit(): Promise<T>
  /**
   * What was answered to each of them, as the checkers read it: a list is a refusal, `[0]` of a renewal means that nothing was
   * there, an error is one that the server is not expected to answer.
   */
  replies(answer: T): readonly Reply[]
  refusals(error: unknown): readonly Reply[]
  /** What the driver rejects with when its connection breaks. */
  broken(): Error
  /** Aborts when nobody waits for the answer any more. */
  readonly signal?: AbortSignal
}

interface Fate {
  readonly kind: FateName | 'prompt'
  /** Until the request or its answer goes on, or until the driver notices that it does not. */
  readonly ms: number
  /** How much later than that it reaches the server in spite of that. */
  readonly lateMs: number
}

const PROMPT: Fate = { kind: 'prompt', ms: 0, lateMs: 0 }

/** A bug that every engine may have: what an acquire of unknown outcome may have been granted is not given back. */
const NOT_UNDONE_NAME = 'an acquire of unknown outcome that is not undone'
export const NOT_UNDONE = { [NOT_UNDONE_NAME]: 'clean-up' }

/** What requests reach: the server with its clock, one at a time or those of the same moment side by side. */
export class Door {
  readonly #time: Time
  readonly #togetherMs: number
  readonly #before: () => void | Promise<void>
  #together: (() => Promise<void>)[] = []

  /** `before` is called when something arrives: the server's clock is set. */
  constructor(time: Time, togetherMs: number, before: () => void | Promise<void>) {
    this.#time = time
    this.#togetherMs = togetherMs
    this.#before = before
  }

  enter(visit: () => Promise<void>): void {
    if (this.#togetherMs === 0) return this.#open([visit])
    this.#together.push(visit)
    if (this.#together.length === 1) this.#time.after(this.#togetherMs, () => this.#open(this.#together.splice(0)))
  }

  #open(visits: readonly (() => Promise<void>)[]): void {
    this.#time.hold(this.#serve(visits))
  }

  async #serve(visits: readonly (() => Promise<void>)[]): Promise<void> {
    await this.#before()
    await Promise.all(visits.map((visit) => visit()))
  }
}

interface CourierParts {
  readonly time: Time
  readonly history: History
  readonly process: Process
  readonly random: Seeded
  readonly door: Door
  readonly plan: Plan
  /** A known bug that is put in. */
  readonly wrong: string | undefined
  /** Numbers the requests of a run. */
  readonly nextId: () => number
}

/**
 * Carries the requests of one process to the real server and its answers back: each promptly, late, not at all, or twice, as the
 * seed says.
 */
export class Courier {
  readonly #parts: CourierParts
  readonly #unknown = new Set<string>()
  #sent = 0
  /** From now on everything travels promptly. */
  isHealed = false

  constructor(parts: CourierParts) {
    this.#parts = parts
  }

  carry<T>(request: Request<T>): Promise<T> {
    const { time, history, process, random, door, plan, wrong, nextId } = this.#parts
    if (
      wrong === NOT_UNDONE_NAME &&
      request.words.every(({ what, owner }) => what === 'release' && this.#unknown.has(owner))
    )
      return new Promise(() => undefined)
    const own = random.fork(this.#sent++)
    const fate = this.isHealed ? PROMPT : drawFate(own, plan)
    const steps = request.words.map((words) => ({
      former: '',
      ...words,
      id: nextId(),
      process: process.name,
      node: request.node ?? NODE,
    }))
    const tell = (kind: 'heard' | 'dropped'): void => {
      for (const step of steps) {
        history.add({ at: time.nowMs, kind, ...step })
        if (kind === 'dropped') this.#unknown.add(step.owner).add(step.former)
      }
    }
    const leavesMs = process.leave()
    for (const step of steps) history.add({ at: leavesMs, kind: 'send', ...step, again: false })
    if (fate.kind !== 'prompt') this.#record(fate, leavesMs, request.words[0]!)
    return new Promise<T>((resolve, reject) => {
      let isOpen = true
      /** What becomes known to the process. */
      const settle = (atMs: number, how: () => void, kind: 'heard' | 'dropped'): void =>
        time.at(atMs, () =>
          process.enter(() => {
            if (!isOpen) return
            isOpen = false
            tell(kind)
            how()
            if (kind === 'heard') process.hears()
          }),
        )
      const breaks = (atMs: number): void => settle(atMs, () => reject(request.broken()), 'dropped')
      request.signal?.addEventListener('abort', () => {
        if (!isOpen) return
        isOpen = false
        tell('dropped')
        reject(request.signal!.reason as Error)
      })
      const executed = (replies: readonly Reply[]): void => {
        for (const [index, step] of steps.entries()) {
          const reply = [replies[index] ?? null]
          history.add({ at: time.nowMs, kind: 'exec', ...step, reply, late: !isOpen, kept: 0 })
        }
      }
      const answer = (how: () => void): void => {
        const backMs = time.nowMs + this.#travelMs(own)
        if (fate.kind === 'lost answer') breaks(backMs + fate.ms)
        else settle(backMs + (fate.kind === 'slow answer' ? fate.ms : 0), how, 'heard')
      }
      const visit = async (): Promise<void> => {
        let how: () => void
        try {
          const result = await request.visit()
          executed(request.replies(result))
          how = () => resolve(result)
        } catch (error) {
          executed(request.refusals(error))
          how = () => reject(error)
        }
        answer(how)
      }
      const arrivesMs = leavesMs + this.#travelMs(own)
      const arrive = (atMs: number): void => time.at(atMs, () => door.enter(visit))
      switch (fate.kind) {
        case 'lost request':
          return breaks(arrivesMs + fate.ms)
        case 'late request':
          breaks(arrivesMs + fate.ms)
          return arrive(arrivesMs + fate.ms + fate.lateMs)
        case 'slow request':
          return arrive(arrivesMs + fate.ms)
        case 'repeated':
          arrive(arrivesMs)
          return arrive(arrivesMs + fate.ms)
        default:
          return arrive(arrivesMs)
      }
    })
  }

  #record({ kind: name, ms, lateMs }: Fate, at: number, { what }: Words): void {
    const late = lateMs > 0 ? { lateMs } : {}
    const text = JSON.stringify({ kind: `${name}: ${what}`, ms, ...late })
    this.#parts.history.add({ at, kind: 'fault', name, on: this.#parts.process.name, text, ms })
  }

  #travelMs(random: Seeded): number {
    const { baseMs, jitterMs } = this.#parts.plan.latency
    return baseMs + jitterMs * random.fraction()
  }
}

/** Where there is one server, or what looks like one. */
const NODE = 'server'

function drawFate(random: Seeded, { fates, ttlMs }: Plan): Fate {
  let left = random.fraction()
  for (const [kind, chance] of Object.entries(fates) as [FateName, number][]) {
    left -= chance
    if (left >= 0) continue
    return { kind, ms: someMs(random, ttlMs), lateMs: kind === 'late request' ? someMs(random, ttlMs) : 0 }
  }
  return PROMPT
}

/** A moment, a part of a lease's time, or more than that. */
function someMs(random: Seeded, ttlMs: number): number {
  return random.pick([random.between(0, 30), random.between(0, 0.3) * ttlMs, random.between(0.3, 1.5) * ttlMs])
}
