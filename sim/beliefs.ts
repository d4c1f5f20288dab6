import type { LeaseLostError } from '../src/errors.ts'
import type { Lease } from '../src/lease.ts'
import type { History } from './history.ts'
import type { Process } from './process.ts'

const GIVEN_UP: ReadonlySet<string> = new Set(['released', 'closed', 'moved'])

/** What the callers of one process believe to hold, and until when, told to the history in true time. */
export class Beliefs {
  readonly #process: Process
  readonly #history: History
  readonly #leases = new Map<string, Lease>()
  /** Leases are kept, so that none is garbage-collected in the middle of a run: that would be up to the garbage collector. */
  readonly #kept: Lease[] = []
  readonly #ended = new Set<string>()
  readonly #untils = new Map<string, number>()

  constructor(process: Process, history: History) {
    this.#process = process
    this.#history = history
  }

  holds(lease: Lease, call: number): void {
    this.#kept.push(lease)
    const { owner, resources, signal } = lease
    const shared = lease.shared ? ({ shared: true } as const) : {}
    this.#leases.set(owner, lease)
    const token = Number(lease.token)
    const { name } = this.#process
    const untilMs = this.#untilMs(lease)
    const at = this.#process.nowMs
    this.#untils.set(owner, untilMs)
    this.#history.add({ at, kind: 'holds', process: name, call, owner, token, resources, untilMs, ...shared })
    const aborts = (): void => {
      this.#history.add({ at: this.#process.nowMs, kind: 'signal', process: name, owner, token })
      const { code, reason } = signal.reason as Partial<LeaseLostError>
      // Given back or handed off by the call itself: that is told by nothing else.
      if (code === 'LEASE_LOST' && GIVEN_UP.has(reason!)) this.ends(owner, reason!)
    }
    if (signal.aborted) aborts()
    else signal.addEventListener('abort', aborts)
  }

  /** Validity as it stands after a clock was changed, at this true time: the process itself may stand still. */
  clockChanged(nowMs: number): void {
    for (const [owner, lease] of this.#leases) {
      const untilMs = this.#untilMs(lease)
      if (untilMs > this.#process.nowMs) this.#until(owner, untilMs)
      else this.#until(owner, Math.min(nowMs, this.#untils.get(owner)!))
    }
  }

  /** An extension to a shorter time was sent: from then on that may be all there is. */
  shortened(): void {
    for (const [owner, lease] of this.#leases) {
      const untilMs = this.#untilMs(lease)
      if (untilMs < this.#untils.get(owner)! - 0.5) this.#until(owner, untilMs)
    }
  }

  renewed(owner: string): void {
    const lease = this.#leases.get(owner)
    if (lease === undefined) return
    const untilMs = this.#untilMs(lease)
    // The process may have stood still since the answer: then it was renewed for a time that is over already.
    if (untilMs > this.#process.nowMs) this.#until(owner, untilMs)
  }

  /** The locks were closed. A leader whose campaign was over has an aborted signal already, which cannot report this. */
  closed(): void {
    for (const [owner, { signal, held }] of this.#leases) if (signal.aborted && !held) this.ends(owner, 'closed')
  }

  ends(owner: string, why: string): void {
    if (this.#ended.has(owner)) return
    this.#ended.add(owner)
    const lease = this.#leases.get(owner)
    this.#leases.delete(owner)
    const token = lease === undefined ? 0 : Number(lease.token)
    this.#history.add({ at: this.#process.nowMs, kind: 'ends', process: this.#process.name, owner, token, why })
  }

  /** In true time. */
  #untilMs(lease: Lease): number {
    const leftMs = this.#process.peek(() => lease.remaining())
    return this.#process.nowMs + leftMs / this.#process.machine.rate
  }

  #until(owner: string, untilMs: number): void {
    this.#untils.set(owner, untilMs)
    const token = Number(this.#leases.get(owner)!.token)
    this.#history.add({ at: this.#process.nowMs, kind: 'until', process: this.#process.name, owner, token, untilMs })
  }
}
