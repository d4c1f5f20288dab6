import type { LeaseInfo, LeaseRef } from '../../engine.ts'

/** Rows of one answer of `page`; fewer mean that it was the last one. */
export const PAGE = 500

/** What a row says now, by the server's clock. */
export interface LeaseRow {
  readonly resource: string
  readonly token: bigint
  /** Undefined when it is free. A row whose time is up is free too, whatever it says. */
  readonly owner: string | undefined
  /** Until it ends by itself; 0 or less when its time is up. */
  readonly remainingMs: number
  /** The session that it ends with, where it is bound to one. */
  readonly session: string | undefined
  /** That session is over, and the lease with it. */
  readonly isEnded: boolean
  /** Its release will be told to those who listen. */
  readonly isAwaited: boolean
}

export interface Look {
  /** The server's clock, in µs since 1970. */
  readonly clockUs: bigint
  /** Resources that nobody has ever had are not among them. */
  readonly rows: readonly LeaseRow[]
}

export interface Take {
  readonly resources: readonly string[]
  readonly owner: string
  readonly ttlMs: number
}

/**
 * A table with one row for each resource that was ever leased: its counter, and who has it until when. Every method is one
 * statement in a transaction of its own, so that it works through a pooler that lends out a connection for one transaction.
 * All times are the server's.
 */
export interface LeaseTable {
  /** Only where one statement can both take a free row and tell the new token: undefined means that it was not free. */
  readonly takeOne?: (take: Take) => Promise<bigint | undefined>
  look(resources: readonly string[]): Promise<Look>
  /**
   * All of the rows or none, each only if it is free at that moment and its counter is below the token. False when one
   * was not: someone else was faster.
   */
  take(take: Take & { token: bigint; endedSessions: readonly string[] }): Promise<boolean>
  /** Asks the holder to tell of its release. False when it is not the holder any more. */
  note?(row: LeaseRow): Promise<boolean>
  /** Asks whoever holds them. */
  noteAll?(resources: readonly string[]): Promise<void>
  /** Which of them are still their owners', and now for their ttl longer. */
  extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]>
  /** The last extension of a lease that is bound to a session: unbinds it. */
  leave?(lease: LeaseRef): Promise<boolean>
  /** How many of the rows were the owner's until now, and how many processes are known to wait for one. */
  release(lease: Pick<LeaseRef, 'resources' | 'owner'>): Promise<{ readonly live: number; readonly awaited: number }>
  /** The new token, or undefined when the lease is no longer the owner's. */
  handOver(lease: LeaseRef, next: Take): Promise<bigint | undefined>
  /** Held leases by name, one or all, a page at a time: those after the given name. */
  page(after: string, resource?: string): Promise<readonly LeaseInfo[]>
  /** Creates the table where there is none; true if it did. */
  create(): Promise<boolean>
  /** The statement that creates it, for people. */
  readonly schema: string
  verdict(error: unknown): Verdict
}

/**
 * What an error means. `again`: lost a race against another transaction, and was rolled back. `no table`: it is not there.
 * `never`: no retry will help, and nothing was done. `undone`: it may help, and nothing was done. `unknown`: it may have
 * been done.
 */
export type Verdict = 'again' | 'no table' | 'never' | 'undone' | 'unknown'
