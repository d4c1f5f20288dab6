import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow } from '../../clock.ts'
import type { Engine, Guarantees } from '../../engine.ts'
import { randomOrThrow } from '../../random.ts'
import { LeaseEngine } from '../shared/sql/lease-engine.ts'
import { TABLE_OPTIONS, tableSettings, type TableOptions } from '../shared/sql/settings.ts'
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
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
  const { table, createTable, timeoutMs, limits } = tableSettings(options)
  const steps = new MariadbSteps(run, table)
  const wakeups = new MariadbWakeups({ clock, random, free: (resources) => steps.free(resources) })
  // The class that PostgreSQL has in common with MariaDB; its steps are ours.
  return new LeaseEngine({
    name: 'mariadb',
    identity: `mariadb:${table}`,
    guarantees: GUARANTEES,
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

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the server',
  token: 'a counter in the row of the resource, raised with the grant in one step and never below the server’s clock',
  survives: { serverRestart: 'yes', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served in one process',
  shared: true,
}
