import { mongodb, type MongoDb } from '../../engines/mongodb/index.ts'
import { splitParameters } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { loadDriver } from './driver.ts'

type Client = new (
  url: string,
  options: object,
) => {
  db(): MongoDb
  close(): Promise<unknown>
}

/** `mongodb://host/database`; parameters that are not ours are the driver's, such as authSource. */
export async function connectMongodb(url: string): Promise<OpenedEngine> {
  const { options, rest } = splitParameters(url, ['collection', 'drift'])
  const { module } = await loadDriver(['mongodb'], 'MongoDB')
  const MongoClient = module['MongoClient'] as Client
  // The driver would look for a server for 30 s before it tells that there is none.
  const client = new MongoClient(rest, { serverSelectionTimeoutMS: 5000 })
  return { engine: mongodb(client.db(), options), close: () => client.close() }
}
