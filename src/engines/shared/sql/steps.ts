import type { LeaseInfo, LeaseRef } from '../../../engine.ts'

/** The number of resources in one answer of `page`; fewer mean that it was the last page. */
export const PAGE = 500

/** What a row says now, by the server's clock. The row of a resource that is shared is here once for each reader. */
export interface TableRow {
  readonly resource: string
  /** The highest token of the resource so far. */
  readonly counter: bigint
  /** Of the owner: a reader may have a lower one than the reader that came last. */
  readonly token: bigint
  /** Undefined when it is free. A row whose time is up is free too, even if it has an owner. */
  readonly owner: string | undefined
  /** Until it ends by itself; 0 or less when its time is up. */
  readonly remainingMs: number
  /** The session that the lease ends with, where it is bound to one. */
  readonly session: string | undefined
  /** That session is over, and the lease with it. */
  readonly isEnded: boolean
  /** Its release will notify those who listen. */
  readonly isAwaited: boolean
  /** The owner is a reader. */
  readonly isShared: boolean
  /** How much longer a writer that waits keeps new readers out; 0 or less when none does. */
  readonly wantedMs: number
}

export interface TableLook {
  /** The server's clock, in µs since 1970. */
  readonly clockUs: bigint
  /** Resources that nobody has ever had are not among them. */
  readonly rows: readonly TableRow[]
}

/** A token: they are ours. No token: not all of them were free. Then `look` is what the statement saw, if it returns that. */
export interface TakeAtOnce {
  readonly token?: bigint
  readonly look?: TableLook
}

export interface Take {
  readonly resources: readonly string[]
  readonly owner: string
  readonly ttlMs: number
  readonly shared?: boolean
  /** As in `LeaseRequest`. */
  readonly keepMs?: number
}

/** One page of the held leases, and the name after which the next page begins, unless it was the last one. */
export interface LeasePage {
  readonly leases: readonly LeaseInfo[]
  readonly next: string | undefined
}

/**
 * The steps on a table with one row for each resource that was ever leased: its counter, and who has it until when. Every
 * step is one statement in a transaction of its own, so that it works through a pooler that lends out a connection for one
 * transaction. All times are the server's.
 */
export interface LeaseSteps {
  /**
   * Only where one statement can both find out whether the rows are free and take them, all of them or none. Returns undefined
   * where the server turns out to have no such statement.
   */
  readonly takeAtOnce?: (take: Take) => Promise<TakeAtOnce | undefined>
  look(resources: readonly string[]): Promise<TableLook>
  /**
   * Takes all of the rows or none: each only if it is free at that moment and its counter is below the token; for a reader also
   * if it is shared and its counter not above the token, and in any case only if no writer keeps readers out. Returns false when
   * one was not so, because another process was faster.
   */
  take(take: Take & { token: bigint; endedSessions: readonly string[] }): Promise<boolean>
  /**
   * Keeps new readers of these resources out for `WANTED_MS` from now. Returns false, and does nothing, when no reader has any of
   * them any more.
   */
  want(resources: readonly string[]): Promise<boolean>
  /** Asks the holder to notify of its release. Returns false when the row has changed hands. */
  note?(row: TableRow): Promise<boolean>
  /** Asks the holders of these resources. */
  noteAll?(resources: readonly string[]): Promise<void>
  /** Returns which of the leases are still their owners'. Those now last for their ttl from this moment. */
  extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]>
  /** The last extension of a lease that is bound to a session: unbinds it. */
  leave?(lease: LeaseRef): Promise<boolean>
  /**
   * Returns how many of the rows were the owner's until now, and for how many of them, which nobody has any more, others are known
   * to wait.
   */
  release(
    lease: Pick<LeaseRef, 'resources' | 'owner' | 'shared'>,
  ): Promise<{ readonly live: number; readonly awaited: number }>
  /**
   * Returns the new token, or undefined when the lease is no longer the owner's. With `keepMs` it is bound to no session until it is
   * extended.
   */
  handOver(lease: LeaseRef, next: Take): Promise<bigint | undefined>
  /** Returns one page of the held leases (of one resource or all of them) in the order of names: those after `after`. */
  page(after: string, resource?: string): Promise<LeasePage>
  /** Creates the table where there is none, and adds what one of an earlier version lacks. Returns which of the two it did. */
  create(): Promise<'created' | 'changed' | 'neither'>
  /** The statement that creates the table, for people. */
  readonly schema: string
  /** The statement that adds what a table of an earlier version lacks. */
  readonly change: string
  failureKind(error: unknown): FailureKind
}

/**
 * What an error means. `again`: the statement lost a race against another transaction and was rolled back. `no table`: there
 * is no lease table. `other table`: it lacks a column. `never`: no retry will help, and nothing was done. `undone`: a retry may help, and nothing was done.
 * `unknown`: it may have been done.
 */
export type FailureKind = 'again' | 'no table' | 'other table' | 'never' | 'undone' | 'unknown'
