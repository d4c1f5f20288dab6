import { conformance, type ConformanceCase, type ConformanceSetup } from '../../src/conformance/index.ts'
import type { Engine } from '../../src/engine.ts'

export interface TwoProcesses extends Omit<ConformanceSetup, 'engine'> {
  /** A new engine on what the first (0) or the second (1) process has. */
  readonly engine: (process: number) => Engine
}

/**
 * The cases on two clients, as two processes would have them: what one connection would keep in order races on two. Each
 * case asks them in turn, whatever runs beside it.
 */
export function conformanceOfTwo({ engine, ...setup }: TwoProcesses): ConformanceCase[] {
  return conformance({ ...setup, engine: () => engine(0) }).map((_claim, index) => {
    let asked = 0
    return conformance({ ...setup, engine: () => engine(asked++ % 2) })[index]!
  })
}
