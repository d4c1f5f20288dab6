import { columnText, type SqlQuery, type SqlRow } from '../engines/shared/sql/client.ts'
import { GuardError } from '../errors.ts'
import type { StoredEffect } from './effect.ts'
import type { Fenced } from './guard.ts'

/** What a transaction leaves of an effect. `table` is quoted. */
export interface EffectStatements {
  schema(table: string): string
  /**
   * Takes the key, or returns false if it is taken. Waits for another transaction that has taken it and is not over.
   */
  claim(query: SqlQuery, table: string, key: string, lease: Fenced): Promise<boolean>
  /** `result`, `at` and `token` as text, of a key that was just found to be taken. */
  read(query: SqlQuery, table: string, key: string): Promise<readonly SqlRow[]>
  /** Completes the record of a key that we have taken. Without `keepMs` it is kept forever. */
  finish(query: SqlQuery, table: string, key: string, terms: Finish): Promise<void>
  /** Deletes up to `most` records whose time is over. */
  clean(query: SqlQuery, table: string, most: number): Promise<void>
}

export interface Finish {
  readonly result: string | null
  readonly keepMs: number | undefined
}

/** A record may be deleted, because its time is over, between the claim that met it and the look at it. */
const MOST_CLAIMS = 3

/** Returns what is recorded for the key, or undefined when the key is ours from now on. */
export async function claimed(
  statements: EffectStatements,
  query: SqlQuery,
  table: string,
  key: string,
  lease: Fenced,
): Promise<StoredEffect | undefined> {
  for (let claims = 0; claims < MOST_CLAIMS; claims++) {
    if (await statements.claim(query, table, key, lease)) return undefined
    const [row] = await statements.read(query, table, key)
    if (row !== undefined) return storedOf(row)
  }
  throw new GuardError(
    `'${key}' is recorded and cannot be read: something else writes its table; find out what, and try again`,
    lease.resources,
  )
}

/** Completes our record and returns it as it will be found. */
export async function finished(
  statements: EffectStatements,
  query: SqlQuery,
  table: string,
  key: string,
  terms: Finish,
): Promise<StoredEffect> {
  await statements.finish(query, table, key, terms)
  const [row] = await statements.read(query, table, key)
  return storedOf(row)
}

function storedOf(row: SqlRow | undefined): StoredEffect {
  return {
    result: row?.['result'] ?? null,
    at: Number(columnText(row, 'at')),
    token: BigInt(columnText(row, 'token')),
  }
}
