import { onTestFinished } from 'vitest'
import type { LeaseInfo, LeaseRef } from '../../src/engine.ts'
import type { LockEvent } from '../../src/events.ts'
import type { Lease } from '../../src/lease.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { LocksOptions } from '../../src/options.ts'
import type { Random } from '../../src/random.ts'
import { viewOf } from '../../harness/engine-view.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { ScriptedEngine, type ScriptedOptions } from '../../harness/scripted-engine.ts'

export interface Bench {
  readonly clock: ManualClock
  readonly engine: ScriptedEngine
  readonly locks: Locks
  readonly events: LockEvent[]
  /** The types of the events so far. */
  readonly told: () => LockEvent['type'][]
  /** All leases on the engine. */
  readonly leases: () => Promise<LeaseInfo[]>
}

/** Locks on a scripted engine and a clock that stands still; closed when the test is over. */
export function bench(options: LocksOptions = {}, engineOptions: ScriptedOptions = {}): Bench {
  const clock = new ManualClock()
  const engine = new ScriptedEngine(clock, engineOptions)
  const events: LockEvent[] = []
  const locks = createLocks(engine, {
    clock,
    random: countedRandom(),
    observe: (event) => void events.push(event),
    ...options,
  })
  onTestFinished(async () => {
    const closing = locks.close()
    // Whatever still waits for time gets it.
    await clock.advance(3_600_000)
    await closing
  })
  return {
    clock,
    engine,
    locks,
    events,
    told: () => events.map(({ type }) => type),
    leases: () => collect(engine.inspect()),
  }
}

/** Ids that count up, and the middle of every range: a run is the same each time. */
function countedRandom(fraction = 0.5): Random {
  let ids = 0
  return { id: () => (++ids).toString(16).padStart(32, '0'), fraction: () => fraction }
}

/** Another process on the same servers: locks of their own over the same leases. */
export function neighbour(bench: Bench, options: LocksOptions = {}): Locks {
  return createLocks(viewOf(bench.engine.inner), { clock: bench.clock, ...options })
}

/** A lease as the engine knows it. */
export function refOf({ resources, owner, token }: Lease, ttlMs = 30_000): LeaseRef {
  return { resources, owner, token, ttlMs }
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** What became of a promise, without waiting for it. */
export function watched<T>(promise: Promise<T>): {
  state: 'pending' | 'resolved' | 'rejected'
  value?: T
  reason?: unknown
} {
  const seen: { state: 'pending' | 'resolved' | 'rejected'; value?: T; reason?: unknown } = { state: 'pending' }
  promise.then(
    (value) => Object.assign(seen, { state: 'resolved', value }),
    (reason: unknown) => Object.assign(seen, { state: 'rejected', reason }),
  )
  return seen
}
