import { mariadb } from '../../../dist/engines/mariadb/index.cjs'

const drivers = { mariadb: () => import('mariadb'), mysql2: () => import('mysql2/promise') }

/** The engine of this process on the server of RINGFENCE_PORT, by the driver of RINGFENCE_DRIVER. */
export async function connect() {
  const { createPool } = await drivers[process.env.RINGFENCE_DRIVER ?? 'mariadb']()
  const port = Number(process.env.RINGFENCE_PORT)
  const pool = createPool({ host: '127.0.0.1', port, user: 'root', database: 'ringfence' })
  const engine = mariadb(pool)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().then(() => pool.end()) })
}
