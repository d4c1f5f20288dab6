import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import { inTime } from '../../engines/shared/in-time.ts'
import { messageOf } from '../../errors.ts'
import { shortMessage, type RecordedRun, type RunStore } from '../../runs.ts'
import type { RunRow, RunsAnswer } from '../protocol.ts'
import { labelOf } from './history.ts'
import { Refused } from './problem.ts'

export interface RunReaderPlan {
  readonly clock: Clock
  readonly redact: (text: string) => string
}

/** How many runs of a job a page gets. */
const MOST_SHOWN = 20
const PATIENCE_MS = 10_000
/** How many jobs are read at a time. A store that never answers is not asked more. */
const MOST_AT_ONCE = 20

/** Reads the runs of jobs in a store, for all pages. */
export class RunReader {
  readonly #store: RunStore
  readonly #plan: RunReaderPlan
  readonly #deadlines: Deadlines
  /** By job: pages that ask for the same one at the same time share an answer. */
  readonly #underWay = new Map<string, Promise<readonly RecordedRun[]>>()

  constructor(store: RunStore, plan: RunReaderPlan) {
    this.#store = store
    this.#plan = plan
    this.#deadlines = new Deadlines(plan.clock)
  }

  async runs(resource: string): Promise<RunsAnswer> {
    const { redact } = this.#plan
    try {
      const reading = this.#underWay.get(resource) ?? this.#read(resource)
      const found = await inTime(reading, this.#deadlines, PATIENCE_MS)
      return { resource, runs: found.slice(0, MOST_SHOWN).map((run) => shownRun(run, redact)) }
    } catch (error) {
      throw new Refused(503, `the store of runs: ${redact(messageOf(error))}`, { 'retry-after': '5' })
    }
  }

  async #read(job: string): Promise<readonly RecordedRun[]> {
    if (this.#underWay.size >= MOST_AT_ONCE) throw new Error(`it has not answered ${MOST_AT_ONCE} questions yet`)
    // A store of the user's own may throw at once.
    const reading = (async () => this.#store.runs(job, { limit: MOST_SHOWN }))()
    this.#underWay.set(job, reading)
    try {
      return await reading
    } finally {
      this.#underWay.delete(job)
    }
  }
}

function shownRun(
  { at, tookMs, outcome, message, owner, token }: RecordedRun,
  redact: (text: string) => string,
): RunRow {
  return {
    atMs: at,
    tookMs: outcome === 'began' ? null : tookMs,
    outcome,
    // What a job failed with may name a server with its login.
    message: shortMessage(message === undefined ? message : redact(message)) ?? null,
    owner,
    label: labelOf(owner),
    token: String(token),
  }
}
