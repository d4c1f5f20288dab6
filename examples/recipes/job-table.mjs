// A table of jobs and many workers, without a lock service: DATABASE_URL=postgres://localhost/app node examples/recipes/job-table.mjs
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
await pool.query('DROP TABLE IF EXISTS job')
await pool.query('CREATE TABLE job (id int PRIMARY KEY, done_by text, tries int NOT NULL DEFAULT 0)')
await pool.query('INSERT INTO job SELECT generate_series(1, 20)')

/** Takes one job, does it and notes it, in one transaction. False when there is none to take. */
async function workOnOne(worker, work) {
  const tx = await pool.connect()
  try {
    await tx.query('BEGIN')
    // Rows that another worker has locked are left out, instead of waited for: no two workers have the same row.
    const { rows } = await tx.query(
      'SELECT id FROM job WHERE done_by IS NULL AND tries < 5 ORDER BY tries, id LIMIT 1 FOR UPDATE SKIP LOCKED',
    )
    for (const { id } of rows) {
      await tx.query('SAVEPOINT work')
      try {
        await work(id, tx)
        await tx.query('UPDATE job SET done_by = $1 WHERE id = $2', [worker, id])
      } catch {
        await tx.query('ROLLBACK TO work') // the row stays locked, and the failure is counted
        await tx.query('UPDATE job SET tries = tries + 1 WHERE id = $1', [id])
      }
    }
    await tx.query('COMMIT')
    tx.release()
    return rows.length > 0
  } catch (error) {
    tx.release(error) // closes the connection: the server rolls back, and the row is free again
    throw error
  }
}

const ran = []
await workOnOne('dan', () => Promise.reject(new Error('cannot')))
const workers = ['ada', 'bob', 'cem'].map(async (worker) => {
  while (await workOnOne(worker, async (id) => ran.push(id)));
})
await Promise.all(workers)
const { rows } = await pool.query('SELECT count(done_by)::int AS done, sum(tries)::int AS failed FROM job')
console.log(
  `${rows[0].done} jobs are done, each by one worker: ${new Set(ran).size === ran.length}; ${rows[0].failed} try failed`,
)
await pool.end()
