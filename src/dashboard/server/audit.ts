import type { Clock } from '../../clock.ts'
import { tell } from '../../events.ts'
import type { Role } from './options.ts'

/** Who forced what, or tried to. */
export interface AuditEntry {
  /** Milliseconds since 1970. */
  readonly atMs: number
  readonly action: 'release' | 'extend' | 'login'
  /** `not held`: the lease that was meant was over. `failed`: the engine could not tell; it may have happened. */
  readonly outcome: 'done' | 'not held' | 'refused' | 'failed'
  /** The name that the auth hook gave, or which token it was. */
  readonly who: string
  readonly role: Role
  readonly remoteAddress?: string
  /** Which engine, where the dashboard has several. */
  readonly engine?: string
  readonly resource?: string
  readonly owner?: string
  readonly token?: string
  readonly ttlMs?: number
  /** Why it was refused, or failed. */
  readonly why?: string
  /** How many refused requests before this one had no line of their own: there were too many. */
  readonly unsaid?: number
}

/** A client without rights could fill a disk with refusals: this many a minute are enough to see the attempt. */
const REFUSALS_A_MINUTE = 60

export class Audit {
  readonly #clock: Clock
  readonly #listener: (entry: AuditEntry) => void
  #minuteMs = -Infinity
  #refusals = 0
  #unsaid = 0

  constructor(clock: Clock, listener: (entry: AuditEntry) => void) {
    this.#clock = clock
    this.#listener = listener
  }

  add(entry: Omit<AuditEntry, 'atMs' | 'unsaid'>): void {
    if (entry.outcome === 'refused' && !this.#mayRefuse()) {
      this.#unsaid++
      return
    }
    const unsaid = this.#unsaid
    this.#unsaid = 0
    tell(this.#listener, { atMs: this.#clock.wallMs(), ...entry, ...(unsaid === 0 ? {} : { unsaid }) })
  }

  #mayRefuse(): boolean {
    const now = this.#clock.monotonicMs()
    if (now - this.#minuteMs >= 60_000) {
      this.#minuteMs = now
      this.#refusals = 0
    }
    return ++this.#refusals <= REFUSALS_A_MINUTE
  }
}
