import { Pool } from 'pg'
import { postgres } from '../../../dist/engines/postgres/index.cjs'

/** The engine of this process on the server of RINGFENCE_URL. */
export async function connect() {
  const pool = new Pool({ connectionString: process.env.RINGFENCE_URL })
  pool.on('error', () => undefined)
  const engine = postgres(pool)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().then(() => pool.end()) })
}
