import { BAD_INPUT, BAD_TICKETS } from './bad-input.ts'
import { Fixture, type ConformanceSetup } from './fixture.ts'
import { MOVES, MOVES_BESIDE_READERS } from './moves.ts'
import { OPTIONAL } from './optional-methods.ts'
import { QUEUE } from './queue.ts'
import { REQUIRED } from './required-methods.ts'
import { EXCLUSIVE_ONLY, SHARED, SHARED_IN_QUEUE } from './shared.ts'
import { SHARED_WITH_LOCKS } from './shared-with-locks.ts'
import { WITH_LOCKS } from './with-locks.ts'

export type { ConformanceSetup, OptionalMethod } from './fixture.ts'

/** One case of the conformance suite, for any test runner. */
export interface ConformanceCase {
  /** A claim about the engine. */
  readonly name: string
  readonly run: () => Promise<void>
}

/**
 * What an engine must do, as cases for any test runner: `for (const { name, run } of conformance(setup)) test(name, run)`.
 * There are cases for every engine, for each optional method that the setup names, and for shared leases if it says that there are any.
 */
export function conformance(setup: ConformanceSetup): ConformanceCase[] {
  const methods = setup.methods ?? []
  if (methods.includes('onDoubt') && setup.disconnect === undefined) {
    throw new TypeError('disconnect: expected a function, because only a lost connection shows that onDoubt works')
  }
  const sharing = methods.includes('enqueue') ? [SHARED, SHARED_IN_QUEUE] : [SHARED]
  const queue = methods.includes('enqueue') ? [QUEUE] : []
  const optional = [...methods.map((method) => OPTIONAL[method]), ...queue, ...(setup.shared === true ? sharing : [])]
  const withLocks = [WITH_LOCKS, setup.shared === true ? SHARED_WITH_LOCKS : EXCLUSIVE_ONLY]
  const moves = setup.shared === true ? [MOVES, BAD_TICKETS, MOVES_BESIDE_READERS] : [MOVES, BAD_TICKETS]
  const canMove = methods.includes('handOver') || methods.includes('adopt')
  const cases = [REQUIRED, ...optional, ...withLocks, BAD_INPUT, ...(canMove ? moves : [])]
  return cases
    .flatMap((some) => Object.entries(some))
    .map(([name, run]) => ({
      name,
      run: async () => {
        const fixture = new Fixture(setup)
        try {
          await run(fixture)
        } catch (error) {
          // What went wrong first is the finding, not what cannot be removed because of it.
          await fixture.close().catch(() => undefined)
          throw error
        }
        await fixture.close()
      },
    }))
}
