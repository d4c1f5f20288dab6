import { span } from '../duration.ts'
import { systemClock, type Clock, type Timer } from '../clock.ts'
import type { LeaseInfo, LockEvent } from '../index.ts'
import { Latest } from '../latest.ts'
import { inForeground } from './child/launch.ts'
import type { Output } from './output.ts'
import { whoIs } from '../owner.ts'

/** How often the line of a terminal is written again. */
const REDRAW_MS = 1000
/** How often the engine is asked who holds it, for a terminal. */
const LOOK_MS = 5000
/** How often a log gets a line. */
const LOG_MS = 30_000
/** What took less is not told. */
const SHORTEST_MS = 1000
/** How many of our attempts are remembered. */
const MOST_OWNERS = 64
/** At how many of the names that were asked for last it looks: a call for a permit waits at that many. */
const MOST_LOOKS = 8

export interface WaitSubject {
  /** What is so while it is waited for: "'backup' is held". */
  readonly held: string
  /** Whether the lease in the way is one of several, so that `held` is to be said too. */
  readonly isOneOfMany?: boolean
  /** The lease in the way. `asked`: what was asked for last, which may be some permits of a pool. */
  lease(asked: readonly string[]): Promise<LeaseInfo | undefined>
}

/** Tells people about a wait while it lasts: a line of the terminal that is rewritten, or a line of the log now and then. */
export class WaitReport {
  readonly #output: Pick<Output, 'say' | 'live' | 'endLive' | 'canBeLive'>
  readonly #subject: WaitSubject
  readonly #clock: Clock
  #timer: Timer | undefined
  #isWaiting = false
  #beganMs = 0
  #seen: { readonly lease: LeaseInfo | undefined; readonly atMs: number } | undefined
  /** Of our latest attempts, and what each was for: one of them is our place in the servers' queue. */
  readonly #owners = new Latest<readonly string[]>(MOST_OWNERS)

  constructor(
    output: Pick<Output, 'say' | 'live' | 'endLive' | 'canBeLive'>,
    subject: WaitSubject,
    clock: Clock = systemClock,
  ) {
    this.#output = output
    this.#subject = subject
    this.#clock = clock
  }

  observe(event: LockEvent): void {
    if (event.type === 'attempt') this.#owners.set(event.owner, event.resources)
    if (event.type === 'waiting') this.#begin()
    if (event.type === 'granted' || event.type === 'denied') this.#end()
  }

  #begin(): void {
    if (this.#isWaiting) return
    this.#isWaiting = true
    this.#beganMs = this.#clock.monotonicMs()
    if (this.#output.canBeLive) void this.#redraw()
    else this.#timer = this.#clock.timer(() => void this.#log(), LOG_MS, true)
  }

  #end(): void {
    this.#isWaiting = false
    this.#seen = undefined
    this.#owners.clear()
    this.#timer?.cancel()
    this.#output.endLive()
  }

  async #redraw(): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (this.#seen === undefined || nowMs - this.#seen.atMs >= LOOK_MS) await this.#look()
    if (!this.#isWaiting) return
    // In the background it would write into what the person does now.
    if (inForeground()) this.#output.live(`waiting${this.#text()}`)
    this.#timer = this.#clock.timer(() => void this.#redraw(), REDRAW_MS, true)
  }

  async #log(): Promise<void> {
    await this.#look()
    if (!this.#isWaiting) return
    this.#output.say(`still waiting${this.#text()}`)
    this.#timer = this.#clock.timer(() => void this.#log(), LOG_MS, true)
  }

  async #look(): Promise<void> {
    // The wait itself says so if the engine cannot be reached.
    const asked = [...new Set([...this.#owners.values()].flat().toReversed())].slice(0, MOST_LOOKS)
    const lease = await this.#subject.lease(asked).catch(() => undefined)
    this.#seen = { lease, atMs: this.#clock.monotonicMs() }
  }

  /** "12 s, number 2 of 3 in line: 'backup' is held by web-1:77 (pg_dump) for 3 min 5 s". What counts most is first: a terminal cuts the rest. */
  #text(): string {
    const nowMs = this.#clock.monotonicMs()
    const { lease, atMs = nowMs } = this.#seen ?? {}
    const waitedMs = nowMs - this.#beganMs
    const waited = waitedMs < SHORTEST_MS ? '' : ` ${span(waitedMs)}`
    if (lease === undefined) return `${waited}: ${this.#subject.held}`
    const { line = [] } = lease
    const place = line.findIndex((waiting) => this.#owners.has(waiting.owner)) + 1
    const inLine = place === 0 ? '' : `, number ${place} of ${line.length} in line`
    const others = this.#subject.isOneOfMany === true ? `; ${this.#subject.held}` : ''
    return `${waited}${inLine}: ${heldNow(lease, nowMs - atMs)}${others}`
  }
}

/** Who is in the way, as a look of some time ago found it. */
export function heldNow({ resource, owner, heldMs, offered }: LeaseInfo, agoMs: number): string {
  if (offered === true) return `'${resource}' is offered to ${whoIs(owner)}`
  const held = `'${resource}' is held by ${whoIs(owner)}`
  if (heldMs === undefined) return held
  return heldMs + agoMs < SHORTEST_MS ? `${held}, since just now` : `${held} for ${span(heldMs + agoMs)}`
}
