// One client of a chaos run. Adds one to balances under a lease, again and again, in two ledgers: one that checks the
// token, and one that does not. Whatever fails, it goes on; what it has done stands in the ledgers, not in its memory.
import { setTimeout as pause } from 'node:timers/promises'
import { Pool } from 'pg'
import { postgresGuard } from '../../../dist/guards/index.js'
import { createLocks } from '../../../dist/index.js'

const { CHAOS_CONNECTOR, CHAOS_LEDGER_URL, CHAOS_TTL_MS, CHAOS_ACCOUNTS, CHAOS_LANES, CHAOS_CLIENT } = process.env
const TTL_MS = Number(CHAOS_TTL_MS)
const ACCOUNTS = CHAOS_ACCOUNTS.split(',')
const WAIT_MS = 3 * TTL_MS
/** Ends the transaction of a process that was stopped in it, which would hold up everybody else. */
const IDLE_MS = 1000
/** What a client of a lock has to expect while its servers fail. */
const EXPECTED = ['WAIT_TIMEOUT', 'ENGINE', 'QUORUM', 'LEASE_LOST', 'STALE_TOKEN', 'GUARD']
/** The ledger's server has ended a transaction, or the connection with it, because we were stopped for too long. */
const ENDED = /25P03|ECONNRESET|EPIPE|terminated|not queryable/

/** The same clock in all processes of the machine, so that what they note can be put in order. */
const nowMs = () => Number(process.hrtime.bigint()) / 1e6
const between = (from, to) => from + Math.random() * (to - from)
const pick = (choices) => choices[Math.floor(Math.random() * choices.length)]

const count = (what) => process.send({ type: 'counted', what })
const ending = new AbortController()
/** When the attempt of an owner began. */
const begun = new Map()

const { connect } = await import(`../connect/${CHAOS_CONNECTOR}.mjs`)
const locks = createLocks(await connect(), { ttl: TTL_MS, wait: WAIT_MS, label: `client ${CHAOS_CLIENT}`, observe })
const pool = new Pool({
  connectionString: CHAOS_LEDGER_URL,
  max: 4,
  idle_in_transaction_session_timeout: IDLE_MS,
}).on('error', () => undefined)
const guard = postgresGuard(pool)

function observe({ type, owner }) {
  if (type === 'attempt') begun.set(owner, nowMs())
  if (type === 'failed' || type === 'refused') begun.delete(owner)
}

async function acquire(accounts) {
  const calledMs = nowMs()
  const lease = await locks.acquire(accounts, { signal: ending.signal })
  const grantedMs = nowMs()
  // Asked after the time was taken: what it says held then.
  const heldMs = lease.held ? grantedMs : null
  const startedMs = begun.get(lease.owner) ?? calledMs
  begun.delete(lease.owner)
  process.send({ type: 'granted' })
  await Promise.all(
    accounts.map((account) =>
      pool.query(
        'INSERT INTO granted (account, token, client, started_ms, granted_ms, held_ms) VALUES ($1, $2, $3, $4, $5, $6)',
        [account, String(lease.token), CHAOS_CLIENT, startedMs, grantedMs, heldMs],
      ),
    ),
  )
  return lease
}

/** A last look at the lease, as careful code has without a guard. */
async function look(lease) {
  const atMs = nowMs()
  if (!lease.held) return false
  await pool.query('UPDATE granted SET held_ms = $1 WHERE account = ANY ($2) AND token = $3', [
    atMs,
    lease.resources,
    String(lease.token),
  ])
  return lease.held
}

async function balances(ledger, accounts) {
  const { rows } = await pool.query(`SELECT account, balance FROM ${ledger} WHERE account = ANY ($1)`, [accounts])
  return rows
}

/** An entry for every increment, in the same step: what the balance should be is counted and not remembered. */
async function write(query, ledger, read, token) {
  for (const { account, balance } of read) {
    await query(
      `WITH written AS (UPDATE ${ledger} SET balance = $2 WHERE account = $1 RETURNING account)
       INSERT INTO entry (ledger, account, token) SELECT '${ledger}', account, $3 FROM written`,
      [account, balance + 1, String(token)],
    )
  }
}

/** `asked`: to stand still between the look and the write, until a word comes. Says whether it came to that. */
async function section(accounts, asked) {
  const lease = await acquire(accounts)
  const { token } = lease
  let stood = false
  try {
    await guard.enter(lease)
    const guarded = await balances('guarded', accounts)
    const unguarded = await balances('unguarded', accounts)
    // Now and then longer than the ttl, so that the lease is renewed.
    await pause(Math.random() < 0.03 ? between(TTL_MS, 2 * TTL_MS) : between(0, 40))
    const isHeld = (await look(lease)) || asked
    stood = asked
    if (asked) await standStill(token)
    // Whatever lies between the last look and the moment when the store has it.
    else await pause(between(0, 40))
    if (isHeld) await write((text, values) => pool.query(text, values), 'unguarded', unguarded, token)
    // Without a look: the guard alone is to be relied on.
    await guard.transaction(lease, (tx) => write((text, values) => tx.query(text, values), 'guarded', guarded, token))
  } catch (error) {
    settle(error)
  }
  process.send({ type: 'left' })
  await lease.release().catch(settle)
  return stood
}

let word

function standStill(token) {
  return new Promise((resolve) => {
    word = resolve
    process.send({ type: 'between', token: String(token) })
  })
}

function settle(error) {
  if (EXPECTED.includes(error.code)) count(error.code)
  else if (ENDED.test(`${error.code} ${error.message}`)) count('ENDED')
  else throw error
}

let order

async function lane() {
  let asked
  while (!ending.signal.aborted) {
    asked ??= order
    if (asked === order) order = undefined
    const first = asked ?? pick(ACCOUNTS)
    // Some take two accounts with one lease.
    const accounts = asked || Math.random() < 0.8 ? [first] : [...new Set([first, pick(ACCOUNTS)])]
    try {
      if (await section(accounts, asked !== undefined)) {
        asked = undefined
        process.send({ type: 'stood' })
      }
    } catch (error) {
      if (error === ending.signal.reason) return
      settle(error)
      // Where nothing can be reached, the answer comes at once.
      await pause(between(20, 100))
    }
  }
}

process.on('message', ({ type, account }) => {
  if (type === 'stand-still') order = account
  if (type === 'go') word()
  if (type === 'end') ending.abort(new Error('the run is over'))
})
await pool.query('SELECT 1')
process.send({ type: 'ready' })
await Promise.all(Array.from({ length: Number(CHAOS_LANES) }, lane))
await locks.close()
await pool.end()
process.send({ type: 'done' })
process.disconnect()
