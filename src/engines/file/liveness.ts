import type { MachineClock } from '../../clock.ts'
import type { Machine } from './machine.ts'

/** A row of the table `lease`. */
export interface StoredLease {
  readonly resource: string
  readonly owner: string
  /** 0 or 1. */
  readonly shared: number
  readonly token: number
  readonly boot: string
  readonly since_ms: number
  readonly renewed_ms: number
  readonly until_ms: number
  readonly process: string | null
}

/** A row of the table `ticket`: a place in the queues of its resources. */
export interface StoredTicket {
  /** Since when it counts, in µs: the order of the queues. */
  readonly number: number
  readonly owner: string
  /** 0 or 1. */
  readonly shared: number
  readonly boot: string
  readonly entered_ms: number
  readonly called_ms: number | null
  readonly process: string | null
}

/** Decides whether a lease or a ticket in the file still counts, or has ended with its time, its process or its boot. */
export class Liveness {
  readonly #machine: Machine
  readonly #clock: MachineClock

  constructor(machine: Machine, clock: MachineClock) {
    this.#machine = machine
    this.#clock = clock
  }

  nowMs(): number {
    return this.#clock.machineMs() - this.#machine.offsetMs
  }

  isOver({ boot, renewed_ms, until_ms, process }: StoredLease): boolean {
    return this.nowMs() >= until_ms || this.#isOfEarlierBoot(boot, renewed_ms) || this.#isGone(process)
  }

  hasLeft({ boot, entered_ms, process }: StoredTicket): boolean {
    return this.#isOfEarlierBoot(boot, entered_ms) || this.#isGone(process)
  }

  /** Its process is stopped, so it cannot take its turn. */
  isStopped({ process }: StoredTicket): boolean {
    return process !== null && this.#machine.isStopped(process)
  }

  /** Where the boot is not known, a time in the future shows it: the clock starts again with each boot. */
  #isOfEarlierBoot(boot: string, writtenMs: number): boolean {
    if (boot !== '' && this.#machine.boot !== '') return boot !== this.#machine.boot
    return writtenMs > this.nowMs()
  }

  #isGone(process: string | null): boolean {
    return process !== null && this.#machine.isGone(process)
  }
}
