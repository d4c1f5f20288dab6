import { given } from '../arguments.ts'
import { createLocks, type Locks } from '../locks.ts'
import type { LocksOptions } from '../options.ts'
import { TestEngine } from './engine.ts'
import { ManualClock } from './manual-clock.ts'

export type { Other, TakeOptions } from './engine.ts'
export { ManualClock, TestEngine }

/** What `testLocks` makes: locks in memory, their engine and their clock. */
export interface TestLocks {
  readonly locks: Locks
  readonly engine: TestEngine
  readonly clock: ManualClock
}

/** Locks in memory whose time passes when the test says so, and whose engine fails when the test says so. */
export function testLocks(options: Omit<LocksOptions, 'clock'> = {}): TestLocks {
  const clock = new ManualClock()
  const engine = new TestEngine({ clock, ...given({ random: options.random }) })
  return { locks: createLocks(engine, { ...options, clock }), engine, clock }
}
