import { mongodb, type MongoDb } from '../../engines/mongodb/index.ts'
import { splitParameters } from './address.ts'
import type { Connection } from './connect.ts'
import { loadDriver } from './driver.ts'
import { redacted } from '../settings.ts'

type Client = new (
  url: string,
  options: object,
) => {
  db(): MongoDb
  close(): Promise<unknown>
}

/** `mongodb://host/database`; parameters that are not ours are the driver's, such as authSource. */
export async function connectMongodb(url: string): Promise<Connection> {
  const { options, rest } = splitParameters(url, { collection: 'text', drift: 'number' })
  const { module } = await loadDriver(['mongodb'], 'MongoDB')
  const MongoClient = module['MongoClient'] as Client
  // The driver would look for a server for 30 s before it tells that there is none.
  const client = new MongoClient(rest, { serverSelectionTimeoutMS: 5000 })
  const engine = mongodb(client.db(), options)
  return { engine, url: redacted(url), close: () => client.close().then(() => undefined) }
}
