import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { optionsOrThrow } from '../../arguments.ts'
import { machineClock, type MachineClock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine, Guarantees } from '../../engine.ts'
import { FileEngine } from './engine.ts'
import { thisMachine } from './machine.ts'

export interface FileOptions {
  /** How long a call may find the file busy. Default a tenth of the ttl, at least 100 ms (half of a shorter ttl), at most 2 s. */
  patience?: Duration
  /**
   * When the lease of a process that died ends. `at once` (default): as soon as someone looks. `after ttl`: as if it had been
   * stopped; for a process whose work may outlive it, since it is done by a child of it.
   */
  deadHolder?: 'at once' | 'after ttl'
  clock?: MachineClock
}

/**
 * Leases in a file, for the processes of one machine. The default path is `ringfence/locks.db` in `$XDG_STATE_HOME`, or in
 * `~/.local/state`: one for each user. The file is opened, and made where there is none, at the first use.
 */
export function file(path: string = defaultPath(), options: FileOptions = {}): Engine {
  if (typeof path !== 'string') throw new TypeError(`path: expected a string, got ${shown(path)}`)
  if (path === '') throw new RangeError('path: expected the path of a file, got an empty string')
  if (/^file:/i.test(path)) throw new RangeError(`path: expected a path, got the URL ${shown(path)}; use fileURLToPath`)
  if (path.includes('\0')) throw new RangeError('path: expected a path without null characters')
  optionsOrThrow(options, ['patience', 'deadHolder', 'clock'])
  const { patience, deadHolder = 'at once', clock = machineClock } = options
  if (deadHolder !== 'at once' && deadHolder !== 'after ttl')
    throw new TypeError(`deadHolder: expected 'at once' or 'after ttl', got ${shown(deadHolder)}`)
  const patienceMs = patience === undefined ? undefined : durationMs(patience, 'patience', { minMs: 1, maxMs: 60_000 })
  return new FileEngine({
    path: resolve(path),
    guarantees: GUARANTEES,
    limits: LIMITS,
    clock,
    patienceMs: (ttlMs) => patienceMs ?? Math.min(Math.max(ttlMs / 10, Math.min(100, ttlMs / 2)), 2000),
    machine: thisMachine,
    endsWithProcess: deadHolder === 'at once',
  })
}

function defaultPath(): string {
  const state = process.env['XDG_STATE_HOME']
  // The standard says to ignore a relative one.
  if (state !== undefined && isAbsolute(state)) return join(state, 'ringfence', 'locks.db')
  const home = homedir()
  // Relative to the current folder it would be another file for each process.
  if (!isAbsolute(home))
    throw new RangeError(`path: expected one, since this user has no home folder, got HOME=${shown(home)}`)
  return join(home, '.local', 'state', 'ringfence', 'locks.db')
}

const LIMITS = {
  // A year, as on other engines: nobody waits for a lock that long.
  maxTtlMs: 365 * 86_400_000,
  // One clock measures both the lease and its validity.
  driftMs: () => 0,
}

const GUARANTEES: Guarantees = {
  exclusion: 'one machine',
  clock: 'this machine',
  token: 'a counter in the file, which also follows the wall clock where that is ahead',
  survives: { serverRestart: 'yes', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served by process',
}
