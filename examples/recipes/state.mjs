// An order that goes from one state to the next, once: DATABASE_URL=postgres://localhost/app node examples/recipes/state.mjs
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
await pool.query('DROP TABLE IF EXISTS purchase')
await pool.query(`CREATE TABLE purchase (id int PRIMARY KEY,
  state text NOT NULL CHECK (state IN ('placed', 'paid', 'shipped', 'cancelled')), changed_by text)`)
await pool.query("INSERT INTO purchase VALUES (42, 'placed')")

/** The process whose statement changed a row has changed the state. `from` may be several states. */
async function move(id, from, to, by) {
  const { rows } = await pool.query(
    'UPDATE purchase SET state = $1, changed_by = $2 WHERE id = $3 AND state = ANY($4) RETURNING state',
    [to, by, id, from],
  )
  if (rows.length > 0) return `${by}: ${to}`
  const now = await pool.query('SELECT state, changed_by FROM purchase WHERE id = $1', [id])
  // A repeat by the same one, after an answer that was lost, is no failure.
  if (now.rows[0]?.state === to && now.rows[0].changed_by === by) return `${by}: ${to} already`
  return `${by}: refused, it is ${now.rows[0]?.state ?? 'not there'}`
}

console.log(await move(42, ['placed'], 'paid', 'payment'))
console.log(await move(42, ['placed'], 'paid', 'payment'))
const race = [move(42, ['paid'], 'shipped', 'depot'), move(42, ['placed', 'paid'], 'cancelled', 'customer')]
const outcomes = await Promise.all(race)
console.log(
  `shipped or cancelled, and not both: ${outcomes.filter((text) => text.includes('refused')).length} was refused`,
)
await pool.end()
