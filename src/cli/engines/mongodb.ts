import { mongodb, type MongoDb } from '../../engines/mongodb/index.ts'
import { splitParameters } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { loadDriver } from './driver.ts'
import { usage } from '../exit-codes.ts'
import { messageOf } from '../output.ts'
import { redacted } from '../settings.ts'

type Client = new (
  url: string,
  options: object,
) => {
  db(): MongoDb
  close(): Promise<unknown>
}

/** `mongodb://host/database`; parameters that are not ours are the driver's, such as authSource. */
export async function connectMongodb(url: string): Promise<OpenedEngine> {
  const { client, options } = await openMongodb(url, ['collection', 'requestTimeout', 'drift'])
  return { engine: mongodb(client.db(), options), close: () => client.close() }
}

export async function openMongodb(
  url: string,
  names: readonly string[],
): Promise<{ client: InstanceType<Client>; options: Record<string, string | number> }> {
  const { options, rest } = splitParameters(url, names)
  const { module } = await loadDriver(['mongodb'], 'MongoDB')
  const MongoClient = module['MongoClient'] as Client
  // The driver would look for a server for 30 s before it tells that there is none.
  return { client: clientOrUsage(url, () => new MongoClient(rest, { serverSelectionTimeoutMS: 5000 })), options }
}

/** Nothing is connected yet: what the driver throws is about the URL. */
function clientOrUsage<T>(url: string, create: () => T): T {
  try {
    return create()
  } catch (error) {
    throw usage(`--engine: expected a URL that the mongodb driver takes, got ${redacted(url)}: ${messageOf(error)}`)
  }
}
