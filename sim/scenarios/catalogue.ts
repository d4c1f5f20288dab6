import { BY_HAND } from './by-hand.ts'
import { LEASES } from './leases.ts'
import { NODES } from './nodes.ts'
import type { Scenario } from './scenario.ts'

/** Every failure of the literature that this project grew out of. */
export const SCENARIOS: readonly Scenario[] = [...BY_HAND, ...LEASES, ...NODES]
