import { createPool } from 'mariadb'
import { mariadb } from '../../../dist/engines/mariadb/index.cjs'

/** The engine of this process on the server of RINGFENCE_PORT. */
export async function connect() {
  const port = Number(process.env.RINGFENCE_PORT)
  const pool = createPool({ host: '127.0.0.1', port, user: 'root', database: 'ringfence' })
  const engine = mariadb(pool)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().then(() => pool.end()) })
}
