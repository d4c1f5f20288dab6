import path from 'node:path'
import { program } from '../engines.ts'
import { flags } from '../flags.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, emptyFolder } from '../temporary-folder.ts'
import { until } from '../until.ts'
import { mongoCommand, type MongoDocument } from './mongo-wire.ts'

const setName = 'rs0'

export interface MongodbOptions {
  /** A replica set of one: transactions and change streams need it. */
  replicaSet?: boolean
}

export class MongodbServer extends ServerHandle {
  readonly #replicaSet: boolean

  constructor(server: Server, port: number, data: string, replicaSet: boolean) {
    const query = replicaSet ? `?replicaSet=${setName}` : '?directConnection=true'
    super(server, { port, url: `mongodb://127.0.0.1:${port}/${query}` }, () => emptyFolder(data))
    this.#replicaSet = replicaSet
  }

  /** Runs one command, as in `command({ ping: 1 })`; its first key is the command's name. */
  command(document: MongoDocument, database = 'admin'): Promise<MongoDocument> {
    return mongoCommand(this.port, { ...document, $db: database })
  }

  override async restart(options?: { empty?: boolean }): Promise<void> {
    await super.restart(options)
    if (this.#replicaSet) await becomePrimary(this.port)
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
      ready: async () => (await mongoCommand(port, { ping: 1, $db: 'admin' }))['ok'] === 1,
    })
    try {
      if (replicaSet) await becomePrimary(port)
    } catch (error) {
      await server.stop()
      throw error
    }
    return new MongodbServer(server, port, data, replicaSet)
  })
}

/** A new set is initiated; one that has its data elects its only member again. */
async function becomePrimary(port: number): Promise<void> {
  const hello = await mongoCommand(port, { hello: 1, $db: 'admin' })
  if (hello['setName'] === undefined) {
    const members = [{ _id: 0, host: `127.0.0.1:${port}` }]
    // A restarted member answers before it has read its own settings, and then refuses a second initiation.
    await mongoCommand(port, { replSetInitiate: { _id: setName, members }, $db: 'admin' }).catch((error: Error) => {
      if (!error.message.includes('already initialized')) throw error
    })
  }
  await until(async () => (await mongoCommand(port, { hello: 1, $db: 'admin' }))['isWritablePrimary'], {
    what: 'the member is primary',
    withinMs: 20_000,
  })
}
