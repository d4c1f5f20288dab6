import { mongodb, type MongoDb } from '../../engines/mongodb/index.ts'
import { filesOf, splitParameters } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { asUsage, loadDriver } from './driver.ts'

type Client = new (
  url: string,
  options: object,
) => {
  db(): MongoDb
  close(): Promise<unknown>
}

/** Which the driver would read when it connects, and then look for the server again and again. */
const TLS_FILES = ['tlsCAFile', 'tlsCertificateKeyFile', 'tlsCRLFile']

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
  filesOf(splitParameters(rest, TLS_FILES).options, TLS_FILES)
  const { module } = await loadDriver(['mongodb'], 'MongoDB')
  const MongoClient = module['MongoClient'] as Client
  const client = asUsage(url, 'mongodb', () => {
    // The driver would look for a server for 30 s before it tells why there is none. The engine waits for 5 s.
    const created = new MongoClient(rest, { serverSelectionTimeoutMS: 4000 })
    // The name of the database is checked only here.
    created.db()
    return created
  })
  return { client, options }
}
