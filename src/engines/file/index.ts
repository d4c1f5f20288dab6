import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { methodsOrThrow, optionsOrThrow } from '../../arguments.ts'
import type { MachineClock } from '../../clock.ts'
import { shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { randomOrThrow, type Random } from '../../random.ts'
import { requestTimeoutOrThrow } from '../shared/limits.ts'
import { bootClock } from './boot-clock.ts'
import { FileEngine } from './engine.ts'
import { thisMachine } from './machine.ts'

/** Options of `file`. */
export interface FileOptions {
  /** How long a call may find the file busy. Default a tenth of the ttl, at least 100 ms (half of a shorter ttl), at most 2 s. */
  requestTimeout?: Duration
  /**
   * When the lease of a process that died ends. `at once` (default): as soon as another process wants it. `after ttl`: when its
   * ttl is over, for a process whose child does the work and may outlive it.
   */
  deadHolder?: 'at once' | 'after ttl'
  clock?: MachineClock
  random?: Random
}

/**
 * Leases in a file, for the processes of one machine. The default path is `ringfence/locks.db` in `$XDG_STATE_HOME`, or in
 * `~/.local/state`: one for each user. The file is opened, or created, at the first use.
 */
export function file(path: string = defaultPath(), options: FileOptions = {}): Engine {
  if (typeof path !== 'string') throw new TypeError(`path: expected a string, got ${shown(path)}`)
  if (path === '')
    throw new RangeError(
      'path: expected the path of a file, got an empty string; leave it out for the one of this user',
    )
  if (/^file:/i.test(path))
    throw new RangeError(`path: expected a path, got the URL ${shown(path)}; use fileURLToPath of node:url`)
  if (path.includes('\0'))
    throw new RangeError('path: expected a path without null characters, got one with them; no file can be called that')
  optionsOrThrow(options, ['requestTimeout', 'deadHolder', 'clock', 'random'])
  const { requestTimeout, deadHolder = 'at once', clock = bootClock() } = options
  if (deadHolder !== 'at once' && deadHolder !== 'after ttl')
    throw new TypeError(`deadHolder: expected 'at once' or 'after ttl', got ${shown(deadHolder)}`)
  if (options.clock !== undefined)
    methodsOrThrow(options.clock, 'clock', ['monotonicMs', 'wallMs', 'timer', 'machineMs'])
  return new FileEngine({
    path: resolve(path),
    clock,
    random: randomOrThrow(options.random),
    requestTimeoutMs: requestTimeoutOrThrow(requestTimeout, TIMEOUT),
    machine: thisMachine,
    endsWithProcess: deadHolder === 'at once',
  })
}

function defaultPath(): string {
  const state = process.env['XDG_STATE_HOME']
  // The standard says to ignore a relative one.
  if (state !== undefined && isAbsolute(state)) return join(state, 'ringfence', 'locks.db')
  const home = homedir()
  // A path relative to the current folder would be another file for each process.
  if (!isAbsolute(home))
    throw new RangeError(
      `path: expected one, since there is no folder for the file: HOME is ${home === '' ? 'empty' : shown(home)}; ` +
        'give a path, or set HOME or XDG_STATE_HOME',
    )
  return join(home, '.local', 'state', 'ringfence', 'locks.db')
}

const TIMEOUT = { divisor: 10, leastMs: 100, mostMs: 2000 }
