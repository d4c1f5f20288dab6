import { Pool } from 'pg'
import { postgresGuard } from '../../../dist/guards/index.cjs'
import { sections } from './sql.mjs'

// Ends the transaction of a process that was stopped in it, which would hold up everybody else.
const IDLE_MS = 400

async function read(by, account) {
  return (await by.query('SELECT balance FROM account WHERE id = $1', [account])).rows[0].balance
}

async function write(tx, account, balance, token) {
  await tx.query('UPDATE account SET balance = $2 WHERE id = $1', [account, balance])
  await tx.query('INSERT INTO log (account, token) VALUES ($1, $2)', [account, String(token)])
}

export async function open() {
  const pool = new Pool({
    connectionString: process.env.POSTGRES_URL,
    max: 2,
    idle_in_transaction_session_timeout: IDLE_MS,
  })
  const guard = postgresGuard(pool)
  return {
    async create(account) {
      await guard.init()
      await pool.query(`CREATE TABLE IF NOT EXISTS account
        (id text PRIMARY KEY, balance int NOT NULL, fence_token bigint, fence_engine text)`)
      await pool.query('CREATE TABLE IF NOT EXISTS log (place bigserial, account text, token bigint)')
      await pool.query('INSERT INTO account (id, balance) VALUES ($1, 0)', [account])
    },
    ...sections(guard, pool, { read, write }),
    async column(lease, between) {
      const [account] = lease.resources
      const fence = guard.column(lease, { after: 2 })
      const update = `UPDATE account SET balance = coalesce($2, balance), ${fence.set} WHERE id = $1 AND ${fence.where}`
      const statement = async (text, balance) => {
        const result = await pool.query(text, [account, balance, ...fence.params])
        await fence.check(result, () => pool.query(`SELECT ${fence.select} FROM account WHERE id = $1`, [account]))
      }
      await statement(update, null)
      const balance = await read(pool, account)
      await between()
      const log = `INSERT INTO log (account, token) SELECT id, fence_token FROM written`
      await statement(`WITH written AS (${update} RETURNING id, fence_token) ${log}`, balance + 1)
    },
    // The server has ended the transaction, or the connection with it.
    isEnded: (error) => /25P03|ECONNRESET|EPIPE|terminated|not queryable/.test(`${error.code} ${error.message}`),
    async result(account) {
      const { rows } = await pool.query('SELECT token FROM log WHERE account = $1 ORDER BY place', [account])
      return { balance: await read(pool, account), tokens: rows.map(({ token }) => token) }
    },
  }
}
