import { Pool } from 'pg'
import { startPostgres } from '../harness/servers/postgres.ts'
import { postgresGuard } from '../src/guards/index.ts'
import type { Span } from './spans.ts'

/**
 * Where the truth of a run stands, in a server that is never touched: balances with and without the guard, an entry for
 * every increment that was ever committed, and every grant.
 */
export interface Ledger extends AsyncDisposable {
  readonly url: string
  /** Whether somebody with a greater token has written to the account without the guard. */
  hasNewer(account: string, token: bigint): Promise<boolean>
  audit(): Promise<Audit>
}

export interface Audit {
  /** Increments that were committed. */
  readonly entries: { readonly guarded: number; readonly unguarded: number }
  /** Of these, how many are not in the balance. */
  readonly lost: { readonly guarded: number; readonly unguarded: number }
  readonly grants: readonly Granted[]
  /** Accounts and tokens that were granted twice. */
  readonly repeated: readonly string[]
  /** Grants with a token that is not greater than that of a grant which was over when they began to be asked for. */
  readonly disordered: readonly string[]
  /** Entries of the guarded ledger that were committed after one with a greater or equal token. */
  readonly stale: readonly string[]
  /** When two clients held the same account, each by its own clock. */
  readonly shared: readonly Span[]
}

export interface Granted {
  readonly account: string
  readonly token: bigint
  readonly startedMs: number
  readonly grantedMs: number
  /** The last time at which its holder looked and held it; null if it never did. */
  readonly heldMs: number | null
}

const SCHEMA = `
  CREATE TABLE guarded (account text PRIMARY KEY, balance int NOT NULL);
  CREATE TABLE unguarded (account text PRIMARY KEY, balance int NOT NULL);
  CREATE TABLE entry (place bigserial PRIMARY KEY, ledger text NOT NULL, account text NOT NULL, token bigint NOT NULL);
  CREATE TABLE granted (account text NOT NULL, token bigint NOT NULL, client text NOT NULL,
    started_ms float8 NOT NULL, granted_ms float8 NOT NULL, held_ms float8);
  CREATE INDEX granted_token ON granted (token);`

export async function openLedger(accounts: readonly string[]): Promise<Ledger> {
  const server = await startPostgres({ settings: { max_connections: '200' } })
  const pool = new Pool({ connectionString: server.url, max: 2 }).on('error', () => undefined)
  await pool.query(SCHEMA)
  await postgresGuard(pool).init()
  for (const ledger of ['guarded', 'unguarded']) {
    await pool.query(`INSERT INTO ${ledger} SELECT unnest($1::text[]), 0`, [accounts])
  }
  return {
    url: server.url,
    async hasNewer(account, token) {
      const newer = `SELECT 1 FROM entry WHERE ledger = 'unguarded' AND account = $1 AND token > $2 LIMIT 1`
      return (await pool.query(newer, [account, String(token)])).rows.length > 0
    },
    audit: () => audit(pool),
    async [Symbol.asyncDispose]() {
      await pool.end()
      await server.stop()
    },
  }
}

async function audit(pool: Pool): Promise<Audit> {
  const totals = await pool.query<{ ledger: 'guarded' | 'unguarded'; entries: number; lost: number }>(`
    SELECT ledger, sum(entries)::int AS entries, sum(abs(entries - balance))::int AS lost FROM (
      SELECT ledger, account, balance, (SELECT count(*) FROM entry WHERE entry.ledger = b.ledger AND entry.account = b.account) AS entries
      FROM (SELECT 'guarded' AS ledger, * FROM guarded UNION ALL SELECT 'unguarded', * FROM unguarded) AS b) AS counted
    GROUP BY ledger`)
  const of = (ledger: string): { entries: number; lost: number } => totals.rows.find((row) => row.ledger === ledger)!
  const [guarded, unguarded] = [of('guarded'), of('unguarded')]
  const repeated = await pool.query<{ what: string }>(
    `SELECT account || ' ' || token AS what FROM granted GROUP BY account, token HAVING count(*) > 1`,
  )
  const stale = await pool.query<{ what: string }>(`
    SELECT account || ' ' || token || ' after ' || before AS what FROM (
      SELECT account, token, max(token) OVER (PARTITION BY account ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM entry WHERE ledger = 'guarded') AS ordered
    WHERE token <= before`)
  const grants = await allGrants(pool)
  return {
    entries: { guarded: guarded.entries, unguarded: unguarded.entries },
    lost: { guarded: guarded.lost, unguarded: unguarded.lost },
    grants,
    repeated: repeated.rows.map(({ what }) => what),
    disordered: byAccount(grants).flatMap(disordered),
    stale: stale.rows.map(({ what }) => what),
    shared: byAccount(grants).flatMap(shared),
  }
}

async function allGrants(pool: Pool): Promise<Granted[]> {
  const { rows } = await pool.query<Record<'account' | 'token', string> & Record<'s' | 'g', number> & { h: number }>(
    'SELECT account, token, started_ms AS s, granted_ms AS g, held_ms AS h FROM granted ORDER BY granted_ms',
  )
  return rows.map(({ account, token, s, g, h }) => ({
    account,
    token: BigInt(token),
    startedMs: s,
    grantedMs: g,
    heldMs: h,
  }))
}

function byAccount(grants: readonly Granted[]): Granted[][] {
  const accounts = new Map<string, Granted[]>()
  for (const grant of grants) {
    const own = accounts.get(grant.account)
    if (own === undefined) accounts.set(grant.account, [grant])
    else own.push(grant)
  }
  return [...accounts.values()]
}

/** The grants of one account, in the order in which they were given. */
export function disordered(grants: readonly Granted[]): string[] {
  const byStart = grants.toSorted((a, b) => a.startedMs - b.startedMs)
  const found: string[] = []
  let over = 0
  let highest = -1n
  for (const grant of byStart) {
    for (; over < grants.length && grants[over]!.grantedMs < grant.startedMs; over++) {
      if (grants[over]!.token > highest) highest = grants[over]!.token
    }
    if (grant.token <= highest) found.push(`${grant.account} ${grant.token} after ${highest}`)
  }
  return found
}

/** The grants of one account, in the order in which they were given. */
export function shared(grants: readonly Granted[]): Span[] {
  const holds = grants.flatMap(({ grantedMs, heldMs }) =>
    heldMs === null ? [] : [{ fromMs: grantedMs, toMs: heldMs }],
  )
  const found: Span[] = []
  for (const [index, hold] of holds.entries()) {
    for (let next = index + 1; next < holds.length && holds[next]!.fromMs < hold.toMs; next++) {
      const later = holds[next]!
      found.push({ fromMs: later.fromMs, toMs: Math.min(hold.toMs, later.toMs) })
    }
  }
  return found
}
