import type { MachineClock } from '../../clock.ts'
import type { Machine } from './machine.ts'

export interface LeaseRow {
  readonly resource: string
  readonly owner: string
  readonly token: number
  readonly boot: string
  readonly since_ms: number
  readonly renewed_ms: number
  readonly until_ms: number
  readonly process: string | null
}

export interface TicketRow {
  readonly number: number
  readonly boot: string
  readonly entered_ms: number
  readonly called_ms: number | null
  readonly process: string | null
}

/** Says of what stands in the file whether it still counts. */
export class Judge {
  readonly #machine: Machine
  readonly #clock: MachineClock

  constructor(machine: Machine, clock: MachineClock) {
    this.#machine = machine
    this.#clock = clock
  }

  nowMs(): number {
    return this.#clock.machineMs() - this.#machine.offsetMs
  }

  isOver({ boot, renewed_ms, until_ms, process }: LeaseRow): boolean {
    return this.nowMs() >= until_ms || this.#isOfEarlierBoot(boot, renewed_ms) || this.#isGone(process)
  }

  hasLeft({ boot, entered_ms, process }: TicketRow): boolean {
    return this.#isOfEarlierBoot(boot, entered_ms) || this.#isGone(process)
  }

  /** It can't take its turn, whatever the time. */
  isStopped({ process }: TicketRow): boolean {
    return process !== null && this.#machine.isStopped(process)
  }

  /** Where a boot is not known, a time that is still to come tells it: the clock starts again with each boot. */
  #isOfEarlierBoot(boot: string, writtenMs: number): boolean {
    if (boot !== '' && this.#machine.boot !== '') return boot !== this.#machine.boot
    return writtenMs > this.nowMs()
  }

  #isGone(process: string | null): boolean {
    return process !== null && this.#machine.isGone(process)
  }
}
