import type { Engine } from '../src/engine.ts'
import type { Time } from '../sim/clock.ts'
import type { Process } from '../sim/process.ts'
import type { Seeded } from '../sim/random.ts'
import type { Courier } from './courier.ts'
import type { Bounds, Plan } from './plan.ts'

/** What a client of an engine is made of. */
export interface Seam {
  readonly process: Process
  readonly courier: Courier
  readonly random: Seeded
  /** Which of several drivers, from 0 to below 1. */
  readonly driver: number
  /** The longest ttl that is asked for. */
  readonly maxTtlMs: number
  /** A known bug is put into what the client sends, by its name. */
  readonly wrong: string | undefined
}

export interface Left {
  readonly resource: string
  readonly owner: string
  readonly leftMs: number
}

/** A real server, and how the clients of an engine are made whose requests go through a courier. */
export interface Target extends AsyncDisposable {
  readonly name: string
  readonly bounds: Bounds
  /** The bugs that can be put in, and the checker that sees each. */
  readonly wrong: Readonly<Record<string, string>>
  /** A shorter ttl is refused. Default: the core's own least. */
  readonly leastTtlMs?: number
  /** A release begins with a look at whose it is: where that is lost, nothing else is sent, and the lease ends with its time. */
  readonly looksFirst?: boolean
  /** How much later than its time a call may end. */
  readonly lateMs: number
  /** All leases of an earlier schedule are forgotten, and the server's clock begins anew. Returns what it shows. */
  begin(): Promise<number>
  /** The server's clock shows this time, in ms since 1970. */
  clock(wallMs: number): void | Promise<void>
  /** The engine of one process. */
  open(seam: Seam): Engine
  /** What else goes wrong, besides what becomes of requests and processes. */
  disturb?(time: Time, plan: Plan): void
  /** The leases that are left on the server; now, by a monotonic clock of a process. Others than of these names do not matter. */
  left(nowMs: number, names: readonly string[]): Promise<readonly Left[]>
}
