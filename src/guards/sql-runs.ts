import { columnText, type SqlQuery, type SqlRow } from '../engines/shared/sql/client.ts'
import type { RecordedRun, Run } from '../runs.ts'

/** How a database keeps the runs of jobs. `table` is quoted. */
export interface RunStatements {
  schema(table: string): string
  /** Creates the row of the run, or completes it. A beginning that comes late changes nothing. */
  record(query: SqlQuery, table: string, run: Run): Promise<void>
  /** Deletes up to 100 of a job's runs, the oldest ones, but none of the newest `most`. */
  trim(query: SqlQuery, table: string, job: string, most: number): Promise<void>
  read(query: SqlQuery, table: string, job: string, limit: number): Promise<readonly SqlRow[]>
}

export function runOf(job: string, row: SqlRow): RecordedRun {
  const message = row['message'] ?? undefined
  return {
    job,
    owner: columnText(row, 'owner'),
    token: BigInt(columnText(row, 'token')),
    engine: columnText(row, 'engine'),
    outcome: columnText(row, 'outcome') as RecordedRun['outcome'],
    at: Number(columnText(row, 'at')),
    tookMs: Number(columnText(row, 'took')),
    ...(message === undefined ? {} : { message }),
  }
}
