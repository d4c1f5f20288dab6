import { postgres } from '../../../dist/engines/postgres/index.cjs'

const drivers = {
  async pg(url) {
    const { Pool } = await import('pg')
    const pool = new Pool({ connectionString: url }).on('error', () => undefined)
    return { client: pool, end: () => pool.end() }
  },
  async 'postgres.js'(url) {
    const { default: postgresJs } = await import('postgres')
    const sql = postgresJs(url, { onnotice: () => undefined })
    return { client: sql, end: () => sql.end({ timeout: 1 }) }
  },
}

/** The engine of this process on the server of RINGFENCE_URL, by the driver of RINGFENCE_DRIVER. */
export async function connect() {
  const { client, end } = await drivers[process.env.RINGFENCE_DRIVER ?? 'pg'](process.env.RINGFENCE_URL)
  const engine = postgres(client)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().then(end) })
}
