import { optionsOrThrow } from '../../arguments.ts'
import { systemClock } from '../../clock.ts'
import type { Engine } from '../../engine.ts'
import { systemRandom } from '../../random.ts'
import { LeaseEngine } from '../shared/sql/lease-engine.ts'
import { TABLE_GUARANTEES, TABLE_OPTIONS, tableSettings, type TableOptions } from '../shared/sql/settings.ts'
import { recogniseMariadb, type MariadbLike } from './client.ts'
import { checkMariadb } from './doctor.ts'
import { MariadbSteps } from './steps.ts'
import { MariadbWakeups } from './wakeups.ts'

export type { MariadbLike } from './client.ts'
export { mariadbSchema } from './statements.ts'

/** Options of `mariadb`. */
export type MariadbOptions = TableOptions

/** Leases in an InnoDB table of MariaDB or MySQL, by the server's clock. These servers notify nobody, so one reader looks for all who wait. */
export function mariadb(client: MariadbLike, options: MariadbOptions = {}): Engine {
  optionsOrThrow(options, TABLE_OPTIONS)
  const run = recogniseMariadb(client)
  const { clock = systemClock, random = systemRandom } = options
  const { table, createTable, timeoutMs, limits } = tableSettings(options)
  const steps = new MariadbSteps(run, table)
  const wakeups = new MariadbWakeups({ clock, random, free: (resources) => steps.free(resources) })
  // The class that PostgreSQL has in common with MariaDB; its steps are ours.
  return new LeaseEngine({
    name: 'mariadb',
    identity: `mariadb:${table}`,
    guarantees: TABLE_GUARANTEES,
    limits,
    clock,
    random,
    steps,
    createTable,
    timeoutMs,
    wakeups,
    end: () => wakeups.close(),
    check: (ttlMs) => checkMariadb({ run, clock, ttlMs, driftMs: limits.driftMs(ttlMs), table, createTable }),
  })
}
