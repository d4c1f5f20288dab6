import { given, optionsOrThrow } from './arguments.ts'
import type { Calls } from './calls.ts'
import { durationMs, shown, type Duration } from './duration.ts'
import { asError, LeaseLostError, messageOf } from './errors.ts'
import { Lease } from './lease.ts'
import { resourceName, waitTerms } from './options.ts'
import type { Run, RunLog } from './runs.ts'
import { section, type Work } from './section.ts'

/** Options of `once`: how far apart the runs of a job are, and where they are recorded. */
export interface OnceOptions {
  /**
   * The job does not run again before this time has passed since its start, even if it ends sooner. If its lease is lost, the
   * time counts from the request for the lease, a round trip before the start. Default 0.
   */
  atLeast?: Duration
  /** The job's lease ends after this time even if the job still runs; its signal aborts. Not below `atLeast`. Default: never. */
  atMost?: Duration
  /** How soon the job may run elsewhere after this machine has died. Default: the ttl of the locks. At least `atLeast` is used. */
  ttl?: Duration
  /** What it is held for, for people who look at the locks. Default: the note of the locks. */
  note?: string
  /**
   * Where each run is recorded: when, by whom, how long, how it ended. A guard of PostgreSQL, MariaDB, MongoDB or Redis. The job
   * does not depend on it: a run that could not be recorded is an event, `unrecorded`. Default: nowhere.
   */
  runs?: RunLog
}

/** What `once` resolves with: the result of the job, or that it runs or has just run elsewhere. */
export type OnceOutcome<T> = { readonly ran: true; readonly value: T } | { readonly ran: false }

/** Runs the job, unless it runs or has just run elsewhere. */
export async function once<T>(
  calls: Calls,
  name: string,
  options: OnceOptions,
  work: Work<T>,
): Promise<OnceOutcome<T>> {
  if (typeof options === 'function')
    throw new TypeError('options: expected an object, got a function; without options: once(name, {}, work)')
  optionsOrThrow(options, ['atLeast', 'atMost', 'ttl', 'note', 'runs'])
  if (typeof work !== 'function')
    throw new TypeError(`work: expected a function, the last argument of once, got ${shown(work)}`)
  const { maxTtlMs: maxMs, longer } = calls.engine.limits
  const atLeastMs = durationMs(options.atLeast ?? 0, 'atLeast', longer === undefined ? { maxMs } : { maxMs, longer })
  const { ttl, atMost, note, runs } = options
  if (runs !== undefined && typeof runs?.recordRun !== 'function') {
    throw new TypeError(
      `runs: expected a guard such as postgresGuard(pool), or an object with recordRun, got ${shown(runs)}`,
    )
  }
  const maxHoldMs = atMost === undefined ? Infinity : durationMs(atMost, 'atMost', { minMs: 1, maxMs: Infinity })
  if (maxHoldMs < atLeastMs) {
    throw new RangeError(
      `atMost: expected at least as long as atLeast, which is ${atLeastMs} ms, got ${shown(atMost)}; ` +
        'a lease that ends before atLeast would let the job run again too early',
    )
  }
  const terms = { ...waitTerms(given({ ttl, note }), calls.settings.defaults, calls.engine), maxHoldMs }
  // The first ttl covers atLeast, so that atLeast is kept even if this machine dies during the job. It is not kept with
  // postgresAdvisory then, because its leases end with their connection.
  const lease = await calls.tryAcquire([resourceName(name)], {
    ...terms,
    ttlMs: Math.max(terms.ttlMs, atLeastMs),
    keepMs: atLeastMs,
  })
  if (!(lease instanceof Lease)) return { ran: false }
  const job: Work<T> = (held) => {
    held.begins()
    return work(held)
  }
  return { ran: true, value: await (runs === undefined ? section(lease, job) : recorded(calls, lease, job, runs)) }
}

/** Runs the job, and records that it began and how it ended. Neither delays the job or changes its outcome. */
async function recorded<T>({ settings }: Calls, lease: Lease, work: Work<T>, runs: RunLog): Promise<T> {
  const { resources, owner, token, engine } = lease
  const { clock, tell } = settings
  const beganMs = clock.monotonicMs()
  const record = async (ending: Pick<Run, 'outcome' | 'tookMs' | 'message'>): Promise<void> => {
    try {
      await runs.recordRun({ job: resources[0]!, owner, token, engine, ...ending })
    } catch (error) {
      tell?.({ type: 'unrecorded', resources, owner, token, cause: asError(error) })
    }
  }
  const begun = record({ outcome: 'began', tookMs: 0 })
  const ended = async (outcome: Run['outcome'], message?: string): Promise<void> => {
    const tookMs = Math.round(clock.monotonicMs() - beganMs)
    await begun
    await record({ outcome, tookMs, ...(message === undefined ? {} : { message }) })
  }
  let value: T
  try {
    value = await section(lease, work)
  } catch (error) {
    await ended(error instanceof LeaseLostError ? 'lost' : 'failed', messageOf(error))
    throw error
  }
  await ended('done')
  return value
}
