// Read, compute, write on one row, by one at a time: DATABASE_URL=postgres://localhost/app node examples/recipes/for-update.mjs
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL, lock_timeout: 5000 })
await pool.query('DROP TABLE IF EXISTS wallet')
await pool.query(
  'CREATE TABLE wallet (id int PRIMARY KEY, cents int NOT NULL CHECK (cents >= 0), history jsonb NOT NULL)',
)
await pool.query("INSERT INTO wallet VALUES (7, 100, '[]')")

async function spend(id, cents, what) {
  const tx = await pool.connect()
  try {
    await tx.query('BEGIN')
    // From here to the COMMIT nobody else changes this row, and a transaction that wants to waits, for lock_timeout at most.
    const { rows } = await tx.query('SELECT cents, history FROM wallet WHERE id = $1 FOR UPDATE', [id])
    const [wallet] = rows
    const enough = wallet !== undefined && wallet.cents >= cents
    if (enough) {
      const history = JSON.stringify([...wallet.history, what])
      await tx.query('UPDATE wallet SET cents = $1, history = $2 WHERE id = $3', [wallet.cents - cents, history, id])
    }
    await tx.query('COMMIT')
    tx.release()
    return enough
  } catch (error) {
    tx.release(error)
    throw error
  }
}

const bought = await Promise.all(['tea', 'cake', 'milk', 'rice', 'salt'].map((what) => spend(7, 30, what)))
const { rows } = await pool.query('SELECT cents, jsonb_array_length(history) AS bought FROM wallet WHERE id = 7')
console.log(`${bought.filter(Boolean).length} of 5 could pay; ${rows[0].cents} left, ${rows[0].bought} in the history`)
await pool.end()
