// One client of a chaos run. Adds one to balances under a lease, again and again, in two ledgers: one that checks the
// token, and one that does not. Whatever fails, it goes on; what it has done stands in the ledgers, not in its memory.
import { setTimeout as pause } from 'node:timers/promises'
import { Pool } from 'pg'
import { postgresGuard } from '../../../dist/guards/index.cjs'
import { createLocks } from '../../../dist/index.cjs'

const { CHAOS_CONNECTOR, CHAOS_LEDGER_URL, CHAOS_TTL_MS, CHAOS_ACCOUNTS, CHAOS_LANES, CHAOS_CLIENT, CHAOS_TOGETHER } =
  process.env
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
const open = async () =>
  createLocks(await connect(), { ttl: TTL_MS, wait: WAIT_MS, label: `client ${CHAOS_CLIENT}`, observe })
const locks = await open()
const pool = new Pool({
  connectionString: CHAOS_LEDGER_URL,
  max: 4,
  idle_in_transaction_session_timeout: IDLE_MS,
}).on('error', () => undefined)
/** A guard that looks at no token is a bug that a run must see. */
const letsAllPass = { enter: async () => undefined, transaction: (_lease, work) => work(pool) }
const guard = process.env.CHAOS_GUARD === 'lets all pass' ? letsAllPass : postgresGuard(pool)

function observe({ type, owner }) {
  if (type === 'attempt') begun.set(owner, nowMs())
  if (type === 'failed' || type === 'refused') begun.delete(owner)
}

/** Every grant stands in the ledger before anything is done with it. */
async function note(lease, accounts, calledMs) {
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

/** How a lease is had and given back: each calls `work` with it. */
const WAYS = {
  async acquire(accounts, work, options = {}) {
    const lease = await locks.acquire(accounts, { signal: ending.signal, ...options })
    try {
      await work(lease)
    } finally {
      await lease.release().catch(settle)
    }
  },
  /** The lease ends in the middle of the work, most of the time. */
  maxHold: (accounts, work) => WAYS.acquire(accounts, work, { maxHold: between(10, 80) }),
  using: (accounts, work) => locks.using(accounts, { signal: ending.signal }, work),
  elect: ([account], work) => locks.elect(account, { signal: ending.signal }, work),
  /** Like a job that is due again and again, it runs when nobody else runs it. */
  async once([account], work) {
    while (!ending.signal.aborted) {
      const { ran } = await locks.once(account, { atLeast: between(0, 100) }, work)
      if (ran) return
      await pause(between(10, 50))
    }
  },
  /** Locks that are closed while the work goes on. */
  async close(accounts, work) {
    const own = await open()
    try {
      const lease = await own.acquire(accounts, { signal: ending.signal })
      await Promise.all([work(lease), pause(between(0, 60)).then(() => own.close())])
    } finally {
      await own.close()
    }
  },
}
/** Every fourth section goes one of these ways, in turn. */
const OTHER_WAYS = ['using', 'elect', 'once', 'maxHold', 'close']
let sections = 4 * Number(CHAOS_CLIENT)
const wayOf = () => (sections++ % 4 === 0 ? OTHER_WAYS[Math.floor(sections / 4) % OTHER_WAYS.length] : 'acquire')

/** `asked`: to stand still between the look and the write, until a word comes. Says whether it came to that. */
async function section(accounts, asked) {
  const way = asked ? 'acquire' : wayOf()
  const taken = way === 'elect' || way === 'once' ? accounts.slice(0, 1) : accounts
  const calledMs = nowMs()
  let stood = false
  const stand = (lease) => {
    stood = true
    return standStill(lease.token)
  }
  await WAYS[way](taken, async (lease) => {
    try {
      await note(lease, taken, calledMs)
      await work(lease, taken, { stand: asked ? stand : undefined, letsGo: way === 'maxHold' || way === 'close' })
    } catch (error) {
      settle(error)
    }
    process.send({ type: 'left', way })
  })
  return stood
}

/**
 * `letsGo`: the lease ends in the middle, on purpose. Without a guard that would lose updates all the time, and hide whether the
 * one is seen that the client loses which stands still.
 */
async function work(lease, accounts, { stand, letsGo }) {
  const { token } = lease
  await guard.enter(lease)
  const guarded = await balances('guarded', accounts)
  const unguarded = await balances('unguarded', accounts)
  // Now and then longer than the ttl, so that the lease is renewed.
  await pause(Math.random() < 0.03 ? between(TTL_MS, 2 * TTL_MS) : between(0, 40))
  const isHeld = (await look(lease)) || stand !== undefined
  if (stand !== undefined) await stand(lease)
  // Whatever lies between the last look and the moment when the store has it.
  else await pause(between(0, 40))
  if (isHeld && !letsGo) await write((text, values) => pool.query(text, values), 'unguarded', unguarded, token)
  // Without a look: the guard alone is to be relied on.
  await guard.transaction(lease, (tx) => write((text, values) => tx.query(text, values), 'guarded', guarded, token))
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
    const isAlone = asked || CHAOS_TOGETHER === 'never' || Math.random() < 0.8
    const accounts = isAlone ? [first] : [...new Set([first, pick(ACCOUNTS)])]
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
