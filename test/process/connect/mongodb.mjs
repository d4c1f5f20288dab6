import { MongoClient } from 'mongodb'
import { mongodb } from '../../../dist/engines/mongodb/index.cjs'

/** The engine of this process on the servers of RINGFENCE_URL. */
export async function connect() {
  const client = new MongoClient(process.env.RINGFENCE_URL)
  const engine = mongodb(client.db('app'))
  const close = engine.close.bind(engine)
  return Object.assign(engine, {
    async close() {
      await close()
      await client.close()
    },
  })
}
