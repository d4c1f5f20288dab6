import path from 'node:path'
import { program } from '../engines.ts'
import { flags } from '../flags.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, emptyFolder } from '../temporary-folder.ts'
import { mongoCommand, type MongoDocument } from './mongo-wire.ts'

const setName = 'rs0'

export interface MongodbOptions {
  /** A replica set of one: transactions and change streams need it. */
  replicaSet?: boolean
}

export class MongodbServer extends ServerHandle {
  constructor(server: Server, port: number, data: string, { replicaSet = false }: MongodbOptions) {
    const query = replicaSet ? `?replicaSet=${setName}` : '?directConnection=true'
    super(server, { port, url: `mongodb://127.0.0.1:${port}/${query}` }, () => emptyFolder(data))
  }

  /** Runs one command, as in `command({ ping: 1 })`; its first key is the command's name. */
  command(document: MongoDocument, database = 'admin'): Promise<MongoDocument> {
    return mongoCommand(this.port, { ...document, $db: database })
  }
}

export async function startMongodb({ replicaSet = false }: MongodbOptions = {}): Promise<MongodbServer> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('mongodb')
    const data = path.join(folder, 'data')
    emptyFolder(data)
    const { path: mongod, env } = program('mongod')
    const settings = flags({
      dbpath: data,
      port,
      bind_ip: '127.0.0.1',
      wiredTigerCacheSizeGB: 0.25,
      // Measurements of itself every second, written to the data folder.
      setParameter: 'diagnosticDataCollectionEnabled=false',
      ...(replicaSet ? { replSet: setName } : {}),
    })
    const server = await Server.start({
      name: `mongodb:${port}`,
      folder,
      command: { path: mongod, args: ['--nounixsocket', ...settings], env },
      port,
      ready: () => takesWrites(port, replicaSet),
    })
    return new MongodbServer(server, port, data, { replicaSet })
  })
}

/** A new replica set is initiated on the way; one that has its data elects its only member again by itself. */
async function takesWrites(port: number, replicaSet: boolean): Promise<boolean> {
  const hello = await mongoCommand(port, { hello: 1, $db: 'admin' })
  if (replicaSet && hello['setName'] === undefined) {
    // A restarted member that has not read its settings yet refuses this, which is as good as "not yet".
    const members = [{ _id: 0, host: `127.0.0.1:${port}` }]
    await mongoCommand(port, { replSetInitiate: { _id: setName, members }, $db: 'admin' })
    return false
  }
  return hello['isWritablePrimary'] === true
}
