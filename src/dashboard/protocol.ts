/**
 * What the server and the page say to each other: types only, for both. The page is at the mount path with a slash behind
 * it, and every address is relative to that. Where there are several engines, `?engine=NAME` says which one is meant, by
 * default the first.
 *
 *     GET  ./                      the page, or the login page with status 401
 *     GET  ./app.js ./app.css …    the files of the page's folder
 *     GET  ./events                server-sent events: `Events`, by name; each with an id
 *     GET  ./history?resource=NAME `History`; ask again when `leases` says something new of that resource
 *     GET  ./past?words=WORDS      `Past`: the history of all resources, those entries that have all of the words
 *     GET  ./runs?resource=NAME    `RunsAnswer`, where `Hello` has `runs`; 503 with why if the store cannot be read
 *     GET  ./healthz               200 while the process answers, to everybody
 *     GET  ./healthz/engines       `EnginesHealth`; 503 if an engine could not be looked through
 *     GET  ./metrics               the same and more for Prometheus, as text
 *     POST ./release               `ReleaseRequest` as application/json -> `ReleaseAnswer`
 *     POST ./extend                `ExtendRequest` as application/json -> `ExtendAnswer`
 *     POST ./login                 form field `token` -> 303 to ./ with a cookie, or 303 to ./#failed (`:target` shows why)
 *     POST ./logout                303 to ./
 *
 * Whatever is refused is answered with a `ProblemDetails`. After a reconnect the server says hello and sends a snapshot again: the
 * page forgets all that it knew at the `leases` with `reset`, so that nothing it missed matters.
 */
export interface Events {
  readonly hello: Hello
  /** All engines of this dashboard, also those that this page does not show. */
  readonly engines: { readonly engines: readonly EngineRow[] }
  readonly leases: LeaseChanges
  readonly nodes: { readonly nodes: readonly NodeRow[] }
  readonly findings: Diagnosis
  /** The engine could not be looked through, and why; null: it works again. What was known stays on show. */
  readonly trouble: { readonly message: string | null }
  /** Every 15 s, whatever else there is to say: a page that hears nothing for longer has lost its line. Without an id. */
  readonly beat: Readonly<Record<string, never>>
}

export interface Hello {
  /** Another one after each start of the server. */
  readonly server: string
  /** `key`: what this dashboard calls it. */
  readonly engine: { readonly key: string; readonly name: string; readonly identity: string }
  readonly may: 'read' | 'write'
  /** There is a cookie to be given back by `./logout`. */
  readonly loggedIn: boolean
  readonly version: string
  /** There is a store of runs to be asked, by `./runs`. */
  readonly runs: boolean
  /** Which ttls an extension may have. */
  readonly limits: { readonly minTtlMs: number; readonly maxTtlMs: number }
}

/** An engine among several, and how it is. */
export interface EngineRow {
  /** What this dashboard calls it. */
  readonly key: string
  readonly leases: number
  /** `ok` and `note`: it works. Undefined: not known yet. */
  readonly severity?: FindingRow['severity']
  /** What is wrong, or '' if nothing is. */
  readonly says: string
}

/** `unknown`: it was not looked through yet. */
export interface EnginesHealth {
  readonly status: 'ok' | 'failing'
  readonly engines: Readonly<Record<string, 'reachable' | 'unreachable' | 'unknown'>>
}

/**
 * All times are relative to when the event was made, `agoMs` before it was sent: subtract it from what is left, add it to
 * what has passed. The first event of a snapshot has `reset`, and all but its last one `more`.
 */
export interface LeaseChanges {
  readonly agoMs: number
  readonly reset: boolean
  readonly more: boolean
  /** New, or something changed that `ends` does not cover. */
  readonly set: readonly LeaseRow[]
  /** Renewed: only the end of the lease has moved. If it is above the row's `ttlMs`, that is the new `ttlMs`. */
  readonly ends: readonly (readonly [key: string, endsInMs: number | null])[]
  readonly gone: readonly string[]
}

export interface LeaseRow {
  readonly resource: string
  /** Of a shared lease, because a resource may have several: what `ends` and `gone` call it. Others are called by their resource. */
  readonly key?: string
  readonly owner: string
  /** The readable part of the owner, without the random one; null if there is none. */
  readonly label: string | null
  /** What it is held for, if its holder said so. */
  readonly note: string | null
  /** A decimal number, often too large for a JavaScript number; 0 for a lock of other software. */
  readonly token: string
  /** Null: without an end, set by other software. May be below 0 for a moment, until the next look. */
  readonly endsInMs: number | null
  /** The most that was ever left of this lease: the full length of the draining bar. */
  readonly ttlMs: number | null
  readonly heldMs: number
  /** False: held for at least `heldMs`, counted from when the server first saw the lease. */
  readonly heldExact: boolean
  /** How many wait for it; null where the engine does not know. */
  readonly waiters: number | null
  /** Nobody holds it: it is offered to this owner, the first in line, who has not taken it yet. */
  readonly offered?: true
}

export interface NodeRow {
  readonly node: string
  readonly roundTripMs: number | null
  /** How far its clock is ahead of the server's own. */
  readonly clockOffsetMs: number | null
  /** It answers, but does not vote for this much longer. */
  readonly sitsOutMs?: number
  /** That time begins with the next attempt to get a lease. */
  readonly sitsOutLater?: boolean
  readonly error?: string
}

/** What the doctor says, the worst first. */
export interface Diagnosis {
  /** 0: something is critical. Above 0 locks work, and the rest up to 100 is left to do. */
  readonly score: number
  readonly findings: readonly FindingRow[]
}

export interface FindingRow {
  readonly id: string
  readonly severity: 'ok' | 'note' | 'warning' | 'critical'
  /** What was found, and on which servers. Servers that say the same are together; none: it is about the engine as a whole. */
  readonly facts: readonly { readonly found: string; readonly nodes: readonly string[] }[]
  readonly meaning: string
  readonly remedy?: string
}

/**
 * The newest first.
 * - `seen`: was held already when the server began to look
 * - `granted`: was free before, as far as the server could see
 * - `handed over`: another owner had it at the look before
 * - `released`: over before its time
 * - `lost`: its time ran out without a release
 * - `forced`, `extended`: by someone at this dashboard
 */
export type HistoryType = 'seen' | 'granted' | 'handed over' | 'released' | 'lost' | 'forced' | 'extended'

export interface HistoryEntry {
  readonly agoMs: number
  readonly type: HistoryType
  readonly owner: string
  readonly label: string | null
  readonly token: string
  /** True: by locks of this process, or by this dashboard itself. False: found by comparing two looks, so up to one look late. */
  readonly exact: boolean
}

export interface History {
  readonly resource: string
  readonly entries: readonly HistoryEntry[]
  /** The oldest first. */
  readonly lives: readonly LifeRow[]
  /** What a person asks who waits for it. */
  readonly why: readonly WhyLine[]
  /** Those in the servers' own queue, the first one first, where the engine knows them. */
  readonly line: readonly LineRow[]
}

/** The newest first. */
export interface Past {
  readonly entries: readonly PastRow[]
  /** There are older ones. */
  readonly more: boolean
  /** Whether it outlives a restart, and if it cannot be written, why. */
  readonly kept: 'in memory' | 'in a file'
  readonly trouble: string | null
}

export interface PastRow extends Omit<HistoryEntry, 'agoMs'> {
  readonly resource: string
  /** When it was noticed: ms since 1970, by the server's clock. */
  readonly atMs: number
}

/** A lease from its beginning to its end. All times are how long ago it was. */
export interface LifeRow {
  readonly owner: string
  readonly label: string | null
  readonly token: string
  /** Null: before anything that is known. */
  readonly beganMs: number | null
  readonly began: 'seen' | 'granted' | 'handed over'
  readonly beganExact: boolean
  /** Null: it goes on. */
  readonly endedMs: number | null
  readonly ended: 'released' | 'lost' | 'forced' | 'handed over' | null
  readonly endedExact: boolean
  /** The last renewals, and how many there were in all. */
  readonly renewals: readonly number[]
  readonly renewed: number
  /** True: told by locks of this process. False: its end had moved at a look, and what happened between two looks was not seen. */
  readonly renewalsExact: boolean
  /** When a renewal failed, told by locks of this process. No look can see that. */
  readonly doubts: readonly number[]
}

/** A sentence in parts: names that others chose, and commands to type, are apart from our own words. */
export interface WhyLine {
  readonly kind: 'fact' | 'warning' | 'next'
  readonly said: readonly (string | { readonly name: string } | { readonly code: string })[]
}

/** A process that waits. */
export interface LineRow {
  readonly owner: string
  readonly label: string | null
  /** Null where it is not known. */
  readonly waitedMs: number | null
}

/** The newest first, at most 20. */
export interface RunsAnswer {
  readonly resource: string
  readonly runs: readonly RunRow[]
}

/** A run of a job of `once`. */
export interface RunRow {
  /** When it began: ms since 1970, by the store's clock. */
  readonly atMs: number
  /** Null: no end is recorded. It still runs, or its process was killed. */
  readonly tookMs: number | null
  readonly outcome: 'began' | 'done' | 'failed' | 'lost'
  /** What it failed with, or how its lease was lost. */
  readonly message: string | null
  readonly owner: string
  readonly label: string | null
  readonly token: string
}

export interface ReleaseRequest {
  readonly resource: string
  /** Of the lease that is meant: a newer one is left alone. */
  readonly token: string
  /** Of the lease that is meant. Needed where several share the resource, since they may have the same token. */
  readonly owner?: string
}

/** `ours`: it was that lease, and is over. False: it was over already, or is someone else's by now. */
export interface ReleaseAnswer {
  readonly ours: boolean
}

export interface ExtendRequest extends ReleaseRequest {
  /** From now. Not less than is left of it: a holder relies on that. */
  readonly ttlMs: number
}

export interface ExtendAnswer {
  readonly held: boolean
}

/** As of RFC 9457, as application/problem+json. */
export interface ProblemDetails {
  readonly type: 'about:blank'
  readonly title: string
  readonly status: number
  readonly detail: string
}
