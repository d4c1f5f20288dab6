import { optionsOrThrow } from './arguments.ts'
import { shown } from './duration.ts'

/** A run of a job of `once`. */
export interface Run {
  readonly job: string
  /** The owner of its lease: a random id, `@` and the label of the locks that ran it. */
  readonly owner: string
  readonly token: bigint
  /** The identity of the engine that granted the token. */
  readonly engine: string
  /** `began`: nothing more is known. It still runs, or its process was killed. */
  readonly outcome: 'began' | 'done' | 'failed' | 'lost'
  /** How long it ran, in ms. 0 while only its beginning is known. */
  readonly tookMs: number
  /** What it failed with, or how its lease was lost. */
  readonly message?: string | undefined
}

/** A run of a job, as a store gives it back. */
export interface RecordedRun extends Run {
  /** When it began: ms since 1970, by the store's clock. */
  readonly at: number
}

/** Where `once` records the runs of a job: a guard of PostgreSQL, MariaDB, MongoDB or Redis, or an object of your own. */
export interface RunLog {
  /** Called when a run begins, and with the same owner when it has ended. */
  recordRun(run: Run): Promise<void>
}

/** Which of the recorded runs are read. */
export interface RunsOptions {
  /** How many, at most 1000. Default 20. */
  limit?: number
}

/** A store of runs that can be read, too. It keeps the last 1000 runs of each job. */
export interface RunStore extends RunLog {
  /** The runs of a job, the newest first. */
  runs(job: string, options?: RunsOptions): Promise<readonly RecordedRun[]>
}

/** How many runs of a job are kept. */
export const MOST_RUNS = 1000
const DEFAULT_RUNS = 20
/** Enough for a reason; the whole output of a job belongs elsewhere. */
const LONGEST_MESSAGE = 500

export function runLimit(options: RunsOptions): number {
  optionsOrThrow(options, ['limit'])
  const { limit = DEFAULT_RUNS } = options
  if (Number.isInteger(limit) && limit >= 1 && limit <= MOST_RUNS) return limit
  throw new RangeError(`limit: expected a whole number from 1 to ${MOST_RUNS}, got ${shown(limit)}`)
}

/** A message as a store keeps it: not too long, well-formed, and without a NUL, which a text of PostgreSQL cannot contain. */
export function shortMessage(message: string | undefined): string | undefined {
  if (message === undefined) return undefined
  const bytes = new TextEncoder().encode(message.slice(0, LONGEST_MESSAGE))
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes).replaceAll('\0', '\uFFFD')
}
