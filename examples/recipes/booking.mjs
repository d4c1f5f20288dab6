// Rooms that cannot be booked twice for a night: DATABASE_URL=postgres://localhost/app node examples/recipes/booking.mjs
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
await pool.query('CREATE EXTENSION IF NOT EXISTS btree_gist') // for "room WITH =" beside a range; ships with PostgreSQL
await pool.query('DROP TABLE IF EXISTS booking')
await pool.query(`CREATE TABLE booking (
  room int NOT NULL, nights daterange NOT NULL CHECK (NOT isempty(nights)), guest text NOT NULL,
  EXCLUDE USING gist (room WITH =, nights WITH &&))`)

/** True if the room is theirs; false if somebody has it for one of these nights. */
async function book(room, from, to, guest) {
  try {
    await pool.query('INSERT INTO booking VALUES ($1, daterange($2, $3), $4)', [room, from, to, guest])
    return true
  } catch (error) {
    if (error.code === '23P01') return false // exclusion_violation
    throw error
  }
}

// The day of departure is free again: a range is without its end.
console.log('Ada, 1st to 5th:', await book(12, '2027-05-01', '2027-05-05', 'Ada'))
console.log('Bob, 4th to 6th:', await book(12, '2027-05-04', '2027-05-06', 'Bob'))
console.log('Bob, 5th to 6th:', await book(12, '2027-05-05', '2027-05-06', 'Bob'))
const rush = ['Cem', 'Dan', 'Eve', 'Fay'].map((guest) => book(14, '2027-05-01', '2027-05-03', guest))
console.log(`four at once: ${(await Promise.all(rush)).filter(Boolean).length} has it`)
await pool.end()
