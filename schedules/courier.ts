import type { Time } from '../sim/clock.ts'
import type { History } from '../sim/history.ts'
import type { Process } from '../sim/process.ts'
import type { Seeded } from '../sim/random.ts'
import type { Reply } from '../sim/redis.ts'
import { Connection, type Link } from './connection.ts'
import { drawFate, PROMPT, recordFate, travelMs, type Fate } from './fates.ts'
import type { Plan } from './plan.ts'

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
  /** Makes it, on the real server; more than once, if it is sent again. */
  visit(): Promise<T>
  /** Its driver sends it again by itself when its connection breaks before the answer. Default false. */
  readonly sendsAgain?: boolean
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

/** A bug that every engine may have: what an acquire of unknown outcome may have been granted is not given back. */
const NOT_UNDONE_NAME = 'an acquire of unknown outcome that is not undone'
export const NOT_UNDONE = { [NOT_UNDONE_NAME]: 'clean-up' }

/** A driver connects again within this time. */
const MOST_RECONNECT_MS = 100

/** What a driver makes of a broken connection that does not send again what was under way on it. */
function lost(fate: Fate): Fate {
  return { ...fate, kind: 'lost answer' }
}

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

export interface CourierParts {
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
  /** Whose steps have an outcome that is not known. */
  readonly unknown = new Set<string>()
  #sent = 0
  #connections = 0
  /** From now on everything travels promptly. */
  isHealed = false

  constructor(parts: CourierParts) {
    this.#parts = parts
  }

  /** Opens a connection to the server. */
  connect<Q, A>(link: Link<Q, A>): Connection<Q, A> {
    const random = this.#parts.random.fork(`connection ${this.#connections++}`)
    return new Connection({ ...this.#parts, random }, this, link)
  }

  /** Whether these words are what the known bug leaves out. */
  forgets(words: readonly Words[]): boolean {
    const { wrong } = this.#parts
    return wrong === NOT_UNDONE_NAME && words.every(({ what, owner }) => what === 'release' && this.unknown.has(owner))
  }

  /** The process has lost something that promises rest on, as the checkers know it. */
  loses(name: 'session'): void {
    const { history, time, process } = this.#parts
    history.add({
      at: time.nowMs,
      kind: 'fault',
      name,
      on: process.name,
      text: JSON.stringify({ kind: `loses its ${name}` }),
      ms: 0,
    })
  }

  carry<T>(request: Request<T>): Promise<T> {
    const { time, history, process, random, door, plan, nextId } = this.#parts
    if (this.forgets(request.words)) return new Promise(() => undefined)
    const own = random.fork(this.#sent++)
    const drawn = this.isHealed ? PROMPT : drawFate(own, plan)
    const fate = drawn.kind === 'sent again' && request.sendsAgain !== true ? lost(drawn) : drawn
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
        if (kind === 'dropped') this.unknown.add(step.owner).add(step.former)
      }
    }
    const leavesMs = process.leave()
    for (const step of steps) history.add({ at: leavesMs, kind: 'send', ...step, again: false })
    if (fate.kind !== 'prompt') recordFate(this.#parts, fate, leavesMs, request.words[0]!)
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
        const backMs = time.nowMs + travelMs(plan, own)
        if (fate.kind === 'lost answer') breaks(backMs + fate.ms)
        else settle(backMs + (fate.kind === 'slow answer' ? fate.ms : 0), how, 'heard')
      }
      const visit = async (isAnswered: boolean): Promise<void> => {
        let how: () => void
        try {
          const result = await request.visit()
          executed(request.replies(result))
          how = () => resolve(result)
        } catch (error) {
          executed(request.refusals(error))
          how = () => reject(error)
        }
        if (isAnswered) answer(how)
      }
      const arrivesMs = leavesMs + travelMs(plan, own)
      const arrive = (atMs: number, isAnswered = true): void => time.at(atMs, () => door.enter(() => visit(isAnswered)))
      const again = (): void => {
        if (!isOpen) return
        const againMs = process.leave()
        for (const step of steps) history.add({ at: againMs, kind: 'send', ...step, again: true })
        arrive(againMs + travelMs(plan, own))
      }
      switch (fate.kind) {
        case 'lost request':
          return breaks(arrivesMs + fate.ms)
        case 'late request':
          breaks(arrivesMs + fate.ms)
          return arrive(arrivesMs + fate.ms + fate.lateMs)
        case 'slow request':
          return arrive(arrivesMs + fate.ms)
        case 'sent again':
          // The first one was lost, or its answer, or it comes later than the second.
          if (own.chance(2 / 3)) arrive(arrivesMs + own.pick([0, fate.ms + fate.lateMs]), false)
          return time.at(arrivesMs + fate.ms + own.between(0, MOST_RECONNECT_MS), () => process.enter(again))
        case 'repeated':
          arrive(arrivesMs)
          return arrive(arrivesMs + fate.ms)
        default:
          return arrive(arrivesMs)
      }
    })
  }
}

/** Where there is one server, or what looks like one. */
export const NODE = 'server'
