import { NODE, type Courier, type CourierParts, type Request, type Words } from './courier.ts'
import { drawFate, PROMPT, recordFate, travelMs, type Fate } from './fates.ts'

/** The server's end of a connection. */
export interface Link<Q, A> {
  inWords(request: Q): Pick<Request<A>, 'words' | 'replies'>
  /** Makes the request on the real server. Returns undefined if the server has ended the connection. */
  visit(request: Q): Promise<A | undefined>
  /** The server hears that its client has ended the connection. */
  left(): Promise<void>
}

interface Step extends Words {
  readonly former: string
  readonly id: number
  readonly process: string
  readonly node: string
}

/** Of so many requests one has a fate of its own: each that is lost costs all that are under way, and a new connection. */
const FATES_EVERY = 3
/** How many times of a lease's time a server needs to notice that a connection is gone of which it hears nothing. */
const NOTICES_AFTER = 1.5

/**
 * A connection of one process to the real server. Requests keep their order, and so do answers. What is lost takes all with it that
 * comes behind it, until the connection breaks; what is late may reach the server after that, unless it knows better by then.
 */
export class Connection<Q, A> {
  readonly #parts: CourierParts
  readonly #courier: Courier
  readonly #link: Link<Q, A>
  readonly #underWay = new Set<readonly Step[]>()
  #sent = 0
  #isOpen = true
  /** Nothing arrives any more. */
  #isCut = { up: false, down: false }
  /** When the last one arrives that was sent. */
  #upMs = 0
  #downMs = 0
  /** It broke, or the server has ended it. */
  onClosed: () => void = () => undefined

  constructor(parts: CourierParts, courier: Courier, link: Link<Q, A>) {
    this.#parts = parts
    this.#courier = courier
    this.#link = link
  }

  send(request: Q, heard: (answer: A) => void): void {
    const { time, history, process, random, door, plan, nextId } = this.#parts
    const { words, replies } = this.#link.inWords(request)
    if (!this.#isOpen || this.#courier.forgets(words)) return
    const own = random.fork(this.#sent++)
    const fate = this.#drawFate(own)
    const about = { process: process.name, node: NODE }
    const steps = words.map((one) => ({ former: '', ...one, ...about, id: nextId() }))
    const leavesMs = process.leave()
    for (const step of steps) history.add({ at: leavesMs, kind: 'send', ...step, again: false })
    if (fate.kind !== 'prompt') recordFate(this.#parts, fate, leavesMs, words[0]!)
    this.#underWay.add(steps)
    const visit = async (): Promise<void> => {
      const answer = await this.#link.visit(request)
      if (answer === undefined) return this.hangUp()
      for (const [index, step] of steps.entries()) {
        const reply = [replies(answer)[index] ?? null]
        history.add({ at: time.nowMs, kind: 'exec', ...step, reply, late: !this.#isOpen, kept: 0 })
      }
      this.#deliver(fate, own, () => {
        this.#underWay.delete(steps)
        this.#tell('heard', steps)
        heard(answer)
        process.hears()
      })
    }
    const slowMs = fate.kind === 'slow request' ? fate.ms : 0
    const arrivesMs = Math.max(this.#upMs, leavesMs + travelMs(plan, own) + slowMs)
    const breaks = fate.kind === 'lost request' || fate.kind === 'late request'
    if (breaks) this.#breakAt(arrivesMs + fate.ms)
    this.#upMs = arrivesMs + (fate.kind === 'late request' ? fate.ms + fate.lateMs : 0)
    if (fate.kind === 'lost request') this.#isCut.up = true
    if (!this.#isCut.up) time.at(this.#upMs, () => door.enter(visit))
  }

  /** The server says something that was not asked for. */
  push(give: () => void): void {
    const own = this.#parts.random.fork(`push ${this.#sent++}`)
    const fate = this.#drawFate(own)
    if (fate.kind !== 'prompt') recordFate(this.#parts, fate, this.#parts.time.nowMs, { what: 'push', owner: '' })
    this.#deliver(fate, own, give)
  }

  /** The server ends it. */
  hangUp(): void {
    if (!this.#isCut.down) this.#breakAt(Math.max(this.#downMs, this.#parts.time.nowMs))
  }

  /** The client ends it. */
  end(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    const { time, process, random, door, plan } = this.#parts
    for (const steps of this.#underWay) this.#tell('dropped', steps)
    this.#underWay.clear()
    const noticedMs = this.#isCut.up ? NOTICES_AFTER * plan.ttlMs : travelMs(plan, random.fork('end'))
    const leftMs = Math.max(this.#upMs, process.leave() + noticedMs)
    time.at(leftMs, () => door.enter(() => this.#link.left()))
  }

  #deliver(fate: Fate, random: CourierParts['random'], give: () => void): void {
    const { time, process, plan } = this.#parts
    if (this.#isCut.down) return
    const backMs = time.nowMs + travelMs(plan, random)
    if (fate.kind === 'lost answer') {
      this.#isCut.down = true
      return this.#breakAt(backMs + fate.ms)
    }
    this.#downMs = Math.max(this.#downMs, backMs + (fate.kind === 'slow answer' ? fate.ms : 0))
    time.at(this.#downMs, () => process.enter(() => this.#isOpen && give()))
  }

  #breakAt(atMs: number): void {
    const { time, process } = this.#parts
    time.at(atMs, () =>
      process.enter(() => {
        if (!this.#isOpen) return
        this.end()
        this.onClosed()
      }),
    )
  }

  #tell(kind: 'heard' | 'dropped', steps: readonly Step[]): void {
    for (const step of steps) {
      this.#parts.history.add({ at: this.#parts.time.nowMs, kind, ...step })
      if (kind === 'dropped') this.#courier.unknown.add(step.owner).add(step.former)
    }
  }

  #drawFate(random: CourierParts['random']): Fate {
    const isOwn = !this.#courier.isHealed && random.chance(1 / FATES_EVERY)
    return isOwn ? drawFate(random, this.#parts.plan) : PROMPT
  }
}
