import { Client } from 'pg'
import { postgresAdvisory } from '../../../dist/engines/postgres/index.cjs'

/** The engine of this process on the server of RINGFENCE_URL. */
export async function connect() {
  return postgresAdvisory(async () => {
    const client = new Client(process.env.RINGFENCE_URL)
    client.on('error', () => undefined)
    await client.connect()
    return client
  })
}
